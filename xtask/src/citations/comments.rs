//! Finds citations like `RFC 9000 §14.1, §8.1` or `RFC 9002 A.8` in the comments of a source file.
//!
//! Lines of one comment are read as one text, so that a citation may be broken between them, and a
//! `§` belongs to the RFC named last in its comment.

use std::collections::{BTreeMap, BTreeSet};

/// Where comments cite each section: files by (RFC, section).
pub(super) type Cited = BTreeMap<(u16, String), BTreeSet<String>>;

/// A section cited in a comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Citation {
    /// The line on which the comment begins.
    pub(super) line: usize,
    pub(super) rfc: u16,
    /// `None`: a section is meant, but written as in `RFC 9000 section 14.1`.
    pub(super) section: Option<String>,
}

/// All citations of a file.
pub(super) fn citations(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut comment = String::new();
    let mut begin = 0;
    for (index, line) in text.lines().enumerate() {
        let Some((code, rest)) = line.split_once("//") else {
            in_comment(begin, &comment, &mut found);
            comment.clear();
            continue;
        };
        // Behind code a comment is one line.
        let behind_code = !code.trim().is_empty();
        if behind_code || comment.is_empty() {
            in_comment(begin, &comment, &mut found);
            comment.clear();
            begin = index + 1;
        }
        comment.push_str(rest.trim_start_matches(['/', '!']));
        comment.push(' ');
        if behind_code {
            in_comment(begin, &comment, &mut found);
            comment.clear();
        }
    }
    in_comment(begin, &comment, &mut found);
    found
}

fn in_comment(line: usize, comment: &str, found: &mut Vec<Citation>) {
    // The RFC that a `§` belongs to: the last one named before it, unless a draft came between.
    let mut named: Option<u16> = None;
    let mut words = comment.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let mut cite = |rfc, section| found.push(Citation { line, rfc, section });
        if word.ends_with("RFC") || word.ends_with("RFCs") {
            let Some(number) = words.next_if(|next| leading_number(next).is_some()) else {
                continue;
            };
            named = leading_number(number);
            let next = words.peek().copied().unwrap_or_default();
            let Some(rfc) = named.filter(|_| number.chars().all(|c| c.is_ascii_digit())) else {
                continue;
            };
            let len = section_len(next);
            if next.starts_with(|c: char| c.is_ascii_uppercase()) && next[..len].contains('.') {
                cite(rfc, Some(next[..len].to_owned()));
            } else if next.eq_ignore_ascii_case("section") || next[..len].contains('.') {
                cite(rfc, None);
            }
        } else if word.contains("draft-") {
            named = None;
        }
        for behind in word.split('§').skip(1) {
            let len = section_len(behind);
            if let Some(rfc) = named
                && len > 0
            {
                cite(rfc, Some(behind[..len].to_owned()));
            }
        }
    }
}

fn leading_number(word: &str) -> Option<u16> {
    let end = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    word[..end].parse().ok()
}

/// Length of the section number at the start of `text`: `14.1`, `A.2`.
fn section_len(text: &str) -> usize {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c.is_ascii_uppercase()))
        .unwrap_or(text.len());
    text[..end].trim_end_matches('.').len()
}
