//! `docs/requirements/` against the tree: every MUST of the RFCs has its code and its test.
//!
//! `catalogue` reads the requirements, `comments` the citations in the source, `page` writes what
//! both say together. It fails when a requirement has neither code and test nor a reason or an
//! issue, when a file, function or test named does not exist, when a section that is met is cited
//! nowhere in the code that meets it, when a comment cites a section that does not exist, and when
//! the page is not what would be written now.

mod catalogue;
mod comments;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::Outcome;
use crate::caps::has_test;
use crate::exec::{files_under, relative, root};
use catalogue::{Place, Requirement, Rfc};
use comments::{Citation, Cited};

const PAGE: &str = "docs/citations.md";

/// The RFCs with a catalogue, by number.
const RFCS: [u16; 3] = [9000, 9001, 9002];

/// Source files by their path from the root.
type Sources = BTreeMap<String, String>;

/// `cargo xtask citations [--write]`.
pub(crate) fn citations(arguments: &[String]) -> Outcome {
    let write = match arguments {
        [] => false,
        [only] if only == "--write" => true,
        _ => return Err("usage: cargo xtask citations [--write]".to_owned()),
    };
    let (rfcs, mut wrong) = read_catalogues()?;
    let sources: Sources = ["crates", "tests"]
        .iter()
        .flat_map(|folder| files_under(&root().join(folder), "rs"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            (relative(&path), text)
        })
        .collect();
    let (cited, unreadable) = collect(&rfcs, &sources);
    wrong.extend(unreadable);
    for rfc in &rfcs {
        wrong.extend(holes(rfc, &sources, &cited));
    }
    print!("{}", page::summary(&rfcs));
    wrong_or_fine(&wrong)?;
    let now = page::page(&rfcs, &cited);
    let path = root().join(PAGE);
    if write {
        return std::fs::write(&path, now).map_err(|error| format!("{PAGE}: {error}"));
    }
    if std::fs::read_to_string(&path).unwrap_or_default() != now {
        return Err(format!(
            "{PAGE} is not up to date: run `cargo xtask citations --write`"
        ));
    }
    Ok(())
}

fn read_catalogues() -> Outcome<(Vec<Rfc>, Vec<String>)> {
    let mut rfcs = Vec::new();
    let mut wrong = Vec::new();
    for number in RFCS {
        let path = format!("docs/requirements/rfc{number}.txt");
        let text = std::fs::read_to_string(root().join(&path))
            .map_err(|error| format!("{path}: {error}"))?;
        let (rfc, complaints) = catalogue::parse(number, &path, &text);
        rfcs.push(rfc);
        wrong.extend(complaints);
    }
    Ok((rfcs, wrong))
}

fn wrong_or_fine(wrong: &[String]) -> Outcome {
    if wrong.is_empty() {
        return Ok(());
    }
    let mut message = format!("{} hole(s)", wrong.len());
    for hole in wrong {
        let _ = write!(message, "\n  {hole}");
    }
    Err(message)
}

/// The citations of all sources, and complaints about those of sections that do not exist.
fn collect(rfcs: &[Rfc], sources: &Sources) -> (Cited, Vec<String>) {
    let mut cited = Cited::new();
    let mut wrong = Vec::new();
    for (path, text) in sources {
        for Citation { line, rfc, section } in comments::citations(text) {
            let Some(known) = rfcs.iter().find(|known| known.number == rfc) else {
                continue;
            };
            let Some(section) = section else {
                wrong.push(format!(
                    "{path}:{line}: a section of RFC {rfc} is written as in `RFC {rfc} §5.1`"
                ));
                continue;
            };
            if known.section(&section).is_none() {
                wrong.push(format!("{path}:{line}: RFC {rfc} has no §{section}"));
                continue;
            }
            cited
                .entry((rfc, section))
                .or_default()
                .insert(path.clone());
        }
    }
    (cited, wrong)
}

/// What the catalogue of one RFC says that is not so, and what it leaves open without an issue.
fn holes(rfc: &Rfc, sources: &Sources, cited: &Cited) -> Vec<String> {
    let mut wrong = Vec::new();
    for section in &rfc.sections {
        for requirement in &section.requirements {
            let at = format!("{}:{}", rfc.path, requirement.line);
            wrong.extend(
                hole(requirement, sources)
                    .into_iter()
                    .map(|what| format!("{at}: §{} ({}): {what}", section.number, requirement.id)),
            );
        }
        let code: BTreeSet<&str> = section
            .requirements
            .iter()
            .flat_map(|requirement| &requirement.code)
            .map(|place| place.file.as_str())
            .collect();
        let files = cited.get(&(rfc.number, section.number.clone()));
        let is_cited = files.is_some_and(|files| files.iter().any(|f| code.contains(f.as_str())));
        if !code.is_empty() && !is_cited {
            wrong.push(format!(
                "{}:{}: no comment in {} cites RFC {} §{}",
                rfc.path,
                section.line,
                code.into_iter().collect::<Vec<_>>().join(" or "),
                rfc.number,
                section.number
            ));
        }
    }
    wrong
}

/// What is wrong with one requirement.
fn hole(requirement: &Requirement, sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    for place in &requirement.code {
        match sources.get(&place.file) {
            None => wrong.push(format!("no file {}", place.file)),
            Some(text) if !has_item(text, &place.item) => {
                let at = elsewhere(sources, |text| has_item(text, &place.item));
                wrong.push(format!("no {} in {}{at}", place.item, place.file));
            }
            Some(_) => {}
        }
    }
    for Place { file, item } in &requirement.tests {
        if !sources.get(file).is_some_and(|text| has_test(text, item)) {
            let at = elsewhere(sources, |text| has_test(text, item));
            wrong.push(format!("no test {item} in {file}{at}"));
        }
    }
    if requirement.declined.is_some() && requirement.is_must() {
        wrong.push("a MUST cannot be declined".to_owned());
    }
    let explained = requirement.so.is_some()
        || requirement.none.is_some()
        || requirement.open.is_some()
        || requirement.declined.is_some();
    if !explained && requirement.code.is_empty() {
        wrong.push("no code, no reason and no issue".to_owned());
    } else if !explained && requirement.tests.is_empty() {
        wrong.push("code without a test that shows it".to_owned());
    }
    wrong
}

/// Where something that moved may be now.
fn elsewhere(sources: &Sources, is_there: impl Fn(&str) -> bool) -> String {
    let files: Vec<&str> = sources
        .iter()
        .filter(|(_, text)| is_there(text))
        .map(|(path, _)| path.as_str())
        .take(3)
        .collect();
    match files.is_empty() {
        true => String::new(),
        false => format!(" (there is one in {})", files.join(", ")),
    }
}

/// Whether `text` declares a function, type or constant of this name.
fn has_item(text: &str, name: &str) -> bool {
    ["fn", "const", "static", "struct", "enum", "trait"]
        .iter()
        .any(|kind| {
            let declaration = format!("{kind} {name}");
            text.match_indices(&declaration).any(|(at, _)| {
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let before = text[..at].chars().next_back();
                let after = text[at + declaration.len()..].chars().next();
                !before.is_some_and(is_word) && !after.is_some_and(is_word)
            })
        })
}

#[cfg(test)]
mod tests;
