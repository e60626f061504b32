//! `docs/citations.md`, and the summary that the command prints.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::catalogue::{Place, Requirement, Rfc, Section, Standing};
use super::comments::Cited;

/// Counts of requirements by how they stand.
#[derive(Clone, Copy, Default)]
struct Counts {
    musts: usize,
    catalogued: usize,
    shown: usize,
    explained: usize,
    open: usize,
    not_ours: usize,
    /// SHOULDs with an entry.
    shoulds: usize,
}

impl Counts {
    fn of<'a>(sections: impl Iterator<Item = &'a Section>) -> Self {
        let mut counts = Self::default();
        for section in sections {
            counts.musts += section.musts.unwrap_or(0);
            counts.catalogued += section.catalogued();
            for requirement in &section.requirements {
                counts.shoulds += usize::from(!requirement.is_must());
                let musts = requirement.musts();
                match requirement.standing() {
                    Standing::Shown => counts.shown += musts,
                    Standing::Explained => counts.explained += musts,
                    Standing::Open => counts.open += musts,
                    Standing::NotOurs => counts.not_ours += musts,
                    Standing::Declined => {}
                }
            }
        }
        counts
    }
}

/// Sections in scope that ask for something, by chapter in the RFC's order: `§14` holds 14, 14.1, …
fn chapters(rfc: &Rfc) -> Vec<(&str, Vec<&Section>)> {
    let mut chapters: Vec<(&str, Vec<&Section>)> = Vec::new();
    for section in rfc
        .sections
        .iter()
        .filter(|s| s.musts > Some(0) || !s.requirements.is_empty())
    {
        let chapter = section.number.split('.').next().unwrap_or_default();
        match chapters.last_mut() {
            Some((last, sections)) if *last == chapter => sections.push(section),
            _ => chapters.push((chapter, vec![section])),
        }
    }
    chapters
}

/// A line for each chapter: how many MUSTs there are, and how they stand.
pub(super) fn summary(rfcs: &[Rfc]) -> String {
    let mut out = String::new();
    let mut all = Counts::default();
    for rfc in rfcs {
        for (chapter, sections) in chapters(rfc) {
            let c = Counts::of(sections.into_iter());
            let _ = writeln!(
                out,
                "RFC {} §{chapter}: {} of {} catalogued; {} shown by tests, {} by reason, {} open, {} not ours",
                rfc.number, c.catalogued, c.musts, c.shown, c.explained, c.open, c.not_ours
            );
        }
        let c = Counts::of(rfc.sections.iter());
        all.catalogued += c.catalogued;
        all.musts += c.musts;
        all.shown += c.shown;
        all.open += c.open;
        all.shoulds += c.shoulds;
    }
    let _ = writeln!(
        out,
        "citations: {} of {} MUSTs catalogued, {} shown by tests, {} open; {} SHOULDs beside them",
        all.catalogued, all.musts, all.shown, all.open, all.shoulds
    );
    out
}

/// The whole page.
pub(super) fn page(rfcs: &[Rfc], cited: &Cited) -> String {
    let mut out = String::from(HEAD);
    out.push_str(
        "| chapter | MUSTs | shown by tests | by reason | open | not ours | SHOULDs listed |\n",
    );
    out.push_str("|---|---|---|---|---|---|---|\n");
    for rfc in rfcs {
        for (chapter, sections) in chapters(rfc) {
            let title = rfc.section(chapter).map_or("", |s| &s.title);
            let c = Counts::of(sections.into_iter());
            let _ = writeln!(
                out,
                "| RFC {} §{chapter} {title} | {} | {} | {} | {} | {} | {} |",
                rfc.number, c.musts, c.shown, c.explained, c.open, c.not_ours, c.shoulds
            );
        }
    }
    open_list(rfcs, &mut out);
    for rfc in rfcs {
        let _ = write!(out, "\n## RFC {}\n", rfc.number);
        let asking = rfc.sections.iter().filter(|s| !s.requirements.is_empty());
        for section in asking {
            section_table(rfc, section, cited, &mut out);
        }
    }
    out
}

const HEAD: &str = "\
# Citations

Written by `cargo xtask citations --write` out of [requirements](requirements/README.md) and of the
comments in the source; edit those. `make check` fails when this page is stale.

A number in brackets counts the MUSTs of a section in the order of its text, `s` its SHOULDs. The
words are ours; the RFC's count.

";

/// What is not met, by the issue that will.
fn open_list(rfcs: &[Rfc], out: &mut String) {
    let mut issues: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for rfc in rfcs {
        for section in &rfc.sections {
            for requirement in &section.requirements {
                if let Some((issue, what)) = &requirement.open {
                    issues.entry(issue).or_default().push(format!(
                        "RFC {} §{} ({}): {} *{what}*",
                        rfc.number, section.number, requirement.id, requirement.text
                    ));
                }
            }
        }
    }
    out.push_str("\n## Open\n");
    for (issue, requirements) in issues {
        let is_number = issue.chars().all(|c| c.is_ascii_digit());
        let _ = match is_number {
            true => write!(out, "\n### Issue {issue}\n\n"),
            false => write!(out, "\n### {issue}\n\n"),
        };
        for requirement in requirements {
            let _ = writeln!(out, "- {requirement}");
        }
    }
}

fn section_table(rfc: &Rfc, section: &Section, cited: &Cited, out: &mut String) {
    let _ = write!(out, "\n### §{} {}\n\n", section.number, section.title);
    if let Some(files) = cited.get(&(rfc.number, section.number.clone())) {
        let files: Vec<String> = files
            .iter()
            .map(|file| format!("`{}`", short(file)))
            .collect();
        let _ = write!(out, "Cited in {}.\n\n", files.join(", "));
    }
    out.push_str("| | requirement | code | test |\n|---|---|---|---|\n");
    for requirement in &section.requirements {
        let _ = writeln!(
            out,
            "| ({}) | {} | {} | {} |",
            requirement.id,
            requirement.text,
            places(&requirement.code),
            shown_by(requirement)
        );
    }
}

fn shown_by(requirement: &Requirement) -> String {
    let mut parts = Vec::new();
    if !requirement.tests.is_empty() {
        parts.push(places(&requirement.tests));
    }
    parts.extend(requirement.so.clone());
    parts.extend(
        requirement
            .none
            .as_ref()
            .map(|why| format!("*Not ours:* {why}")),
    );
    parts.extend(
        requirement
            .declined
            .as_ref()
            .map(|why| format!("*Not done:* {why}")),
    );
    parts.extend(
        requirement
            .open
            .as_ref()
            .map(|(issue, what)| format!("**Open, {issue}:** {what}")),
    );
    parts.join("<br>")
}

fn places(places: &[Place]) -> String {
    let shown: Vec<String> = places
        .iter()
        .map(|place| format!("`{}` {}", short(&place.file), place.item))
        .collect();
    shown.join("<br>")
}

/// Without `crates/`.
fn short(file: &str) -> &str {
    file.strip_prefix("crates/").unwrap_or(file)
}
