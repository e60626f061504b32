//! `docs/caps.md` against the source: every queue a peer can drive has a named cap and a test.
//!
//! A row is `| cap | value | where | test | … |`. It fails when the constant is not in the named
//! file, when its value there is written differently, or when the test does not exist. The other
//! way round, a constant whose doc comment says `Cap:` fails when the page has no row for it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::Outcome;
use crate::exec::{files_under, relative, root};

const PAGE: &str = "docs/caps.md";

struct Row {
    line: usize,
    cap: String,
    value: String,
    place: String,
    test: String,
}

/// A constant found in a source file.
#[derive(Debug, PartialEq, Eq)]
struct Constant {
    name: String,
    value: String,
    /// Its doc comment says `Cap:`.
    marked: bool,
}

/// Checks the page; fails with every wrong row at once.
pub(crate) fn caps() -> Outcome {
    let page =
        std::fs::read_to_string(root().join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let sources: Vec<(String, String)> = ["crates", "tests"]
        .iter()
        .flat_map(|folder| files_under(&root().join(folder), "rs"))
        .map(|path| {
            (
                relative(&path),
                std::fs::read_to_string(&path).unwrap_or_default(),
            )
        })
        .collect();
    let (rows, mut wrong) = rows(&page);
    wrong.extend(wrong_rows(&rows, &sources));
    if rows.is_empty() {
        wrong.push(format!("{PAGE}: the table has no row"));
    }
    if wrong.is_empty() {
        println!(
            "caps: {} rows, each with its constant and its test",
            rows.len()
        );
        return Ok(());
    }
    let mut message = format!("{} wrong row(s)", wrong.len());
    for row in &wrong {
        let _ = write!(message, "\n  {row}");
    }
    Err(message)
}

/// The table's rows, and complaints about rows with empty cells.
fn rows(page: &str) -> (Vec<Row>, Vec<String>) {
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    let mut in_table = false;
    for (index, text) in page.lines().enumerate() {
        let line = index + 1;
        let Some(inner) = text.trim().strip_prefix('|') else {
            in_table = false;
            continue;
        };
        let cells: Vec<String> = inner
            .trim_end_matches('|')
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect();
        let is_rule = cells
            .iter()
            .all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':' | ' ')));
        if is_rule {
            in_table = true;
        } else if in_table {
            match cells.as_slice() {
                [cap, value, place, test, ..] if cells[..4].iter().all(|cell| !cell.is_empty()) => {
                    rows.push(Row {
                        line,
                        cap: cap.clone(),
                        value: value.clone(),
                        place: place.clone(),
                        test: test.clone(),
                    })
                }
                _ => wrong.push(format!(
                    "{PAGE}:{line}: a row needs cap, value, where and test"
                )),
            }
        }
    }
    (rows, wrong)
}

fn wrong_rows(rows: &[Row], sources: &[(String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        let at = format!("{PAGE}:{}: {}", row.line, row.cap);
        match sources.iter().find(|(path, _)| *path == row.place) {
            None => wrong.push(format!("{at}: no file {}", row.place)),
            Some((_, text)) => match constants(text)
                .into_iter()
                .find(|constant| constant.name == row.cap)
            {
                None => wrong.push(format!("{at}: no such constant in {}", row.place)),
                Some(constant) if plain(&constant.value) != plain(&row.value) => {
                    wrong.push(format!(
                        "{at}: the page says {}, {} says {}",
                        row.value, row.place, constant.value
                    ));
                }
                Some(_) => {}
            },
        }
        let test = row.test.rsplit("::").next().unwrap_or(&row.test);
        if !sources.iter().any(|(_, text)| has_test(text, test)) {
            wrong.push(format!("{at}: no test named {test}"));
        }
    }
    let listed: BTreeSet<(&str, &str)> = rows
        .iter()
        .map(|row| (row.place.as_str(), row.cap.as_str()))
        .collect();
    for (path, text) in sources {
        for constant in constants(text)
            .into_iter()
            .filter(|constant| constant.marked)
        {
            if !listed.contains(&(path.as_str(), constant.name.as_str())) {
                wrong.push(format!(
                    "{path}: {} is marked `Cap:` and has no row in {PAGE}",
                    constant.name
                ));
            }
        }
    }
    wrong
}

/// Every `const NAME: Type = value;` of a file.
fn constants(text: &str) -> Vec<Constant> {
    let mut found = Vec::new();
    let mut marked = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("///") {
            marked |= comment.contains("Cap:");
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        if let Some((name, mut rest)) = constant_start(line) {
            while !rest.contains(';') {
                let Some(next) = lines.next() else { break };
                rest.push(' ');
                rest.push_str(next.trim());
            }
            let value = rest.split_once('=').map_or("", |(_, value)| value);
            let value = value.split(';').next().unwrap_or_default().trim();
            found.push(Constant {
                name,
                value: value.to_owned(),
                marked,
            });
        }
        marked = false;
    }
    found
}

/// The name of a constant declared on this line, and what follows it.
fn constant_start(line: &str) -> Option<(String, String)> {
    let declaration = match line.strip_prefix("pub") {
        None => line,
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
    };
    let (name, rest) = declaration.strip_prefix("const ")?.split_once(':')?;
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_name.then(|| (name.to_owned(), rest.to_owned()))
}

/// Whether `text` has a function of this name under an attribute that speaks of a test.
pub(crate) fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declaration = format!("fn {name}(");
    lines.iter().enumerate().any(|(index, line)| {
        line.contains(&declaration)
            && lines[..index]
                .iter()
                .rev()
                .take_while(|above| above.starts_with("#[") || above.starts_with("//"))
                .any(|above| above.starts_with("#[") && above.contains("test"))
    })
}

/// A value without spaces and digit separators, to compare what was meant.
fn plain(value: &str) -> String {
    value
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '_')
        .collect()
}

#[cfg(test)]
mod tests;
