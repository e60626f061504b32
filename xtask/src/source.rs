//! A small reader of Rust source: tokens with lines, and the paths a file names.
//!
//! `layers` uses it to see which modules a file reaches for. It knows comments, strings,
//! lifetimes, `use` trees and inline modules; it does not expand macros or resolve names that
//! came in through a `use` (the `use` itself is seen).

/// One token; everything that is neither a name nor `::` is a single character.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    PathSeparator,
    Symbol(char),
}

/// A path as the file wrote it, made absolute from the crate's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPath {
    /// Segments from the crate's root; a glob ends in `*`.
    pub(crate) segments: Vec<String>,
    /// 1-based line.
    pub(crate) line: usize,
}

/// Every path in `text` that starts with `crate`, `self` or `super`, made absolute.
///
/// `module` is the module the file is, from the crate's root (`["connection", "acks"]`).
pub(crate) fn named_paths(text: &str, module: &[String]) -> Vec<NamedPath> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        let here = || {
            module
                .iter()
                .cloned()
                .chain(inline.iter().map(|(name, _)| name.clone()))
                .collect::<Vec<_>>()
        };
        match &tokens[at].0 {
            Token::Symbol('{') => depth += 1,
            Token::Symbol('}') => {
                depth -= 1;
                if inline
                    .last()
                    .is_some_and(|(_, opened_at)| *opened_at == depth)
                {
                    inline.pop();
                }
            }
            Token::Name(word) if word == "mod" => {
                if let (Some((Token::Name(name), _)), Some((Token::Symbol('{'), _))) =
                    (tokens.get(at + 1), tokens.get(at + 2))
                {
                    inline.push((name.clone(), depth));
                    depth += 1;
                    at += 2;
                }
            }
            Token::Name(word) if word == "use" => {
                let mut raw = Vec::new();
                at = use_tree(&tokens, at + 1, &mut Vec::new(), &mut raw);
                let base = here();
                found.extend(
                    raw.into_iter()
                        .filter_map(|(path, line)| absolute(&path, &base, line)),
                );
                continue;
            }
            Token::Name(_) if at == 0 || tokens[at - 1].0 != Token::PathSeparator => {
                let line = tokens[at].1;
                let mut path = Vec::new();
                let mut next = at;
                while let Some((Token::Name(name), _)) = tokens.get(next) {
                    path.push(name.clone());
                    if tokens.get(next + 1).map(|token| &token.0) != Some(&Token::PathSeparator) {
                        break;
                    }
                    next += 2;
                }
                if path.len() > 1 {
                    found.extend(absolute(&path, &here(), line));
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn absolute(path: &[String], module: &[String], line: usize) -> Option<NamedPath> {
    let mut segments = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        _ => return None,
    };
    for segment in path {
        match segment.as_str() {
            "crate" | "self" => {}
            "super" => {
                segments.pop();
            }
            _ => segments.push(segment.clone()),
        }
    }
    Some(NamedPath { segments, line })
}

/// Reads one `use` tree from `at`; returns the index after it (after `;` at the top).
fn use_tree(
    tokens: &[(Token, usize)],
    mut at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let depth = prefix.len();
    let line = tokens.get(at).map_or(0, |token| token.1);
    let mut grouped = false;
    while let Some((token, _)) = tokens.get(at) {
        match token {
            Token::Name(name) if name == "as" => at += 1,
            Token::Name(name) => prefix.push(name.clone()),
            Token::Symbol('*') => prefix.push("*".to_owned()),
            Token::PathSeparator => {}
            Token::Symbol('{') => {
                grouped = true;
                at += 1;
                while tokens
                    .get(at)
                    .is_some_and(|token| token.0 != Token::Symbol('}'))
                {
                    at = use_tree(tokens, at, prefix, found);
                    if tokens
                        .get(at)
                        .is_some_and(|token| token.0 == Token::Symbol(','))
                    {
                        at += 1;
                    }
                }
            }
            _ => break,
        }
        at += 1;
    }
    if !grouped && prefix.len() > depth {
        found.push((prefix.clone(), line));
    }
    prefix.truncate(depth);
    at
}

fn tokens(text: &str) -> Vec<(Token, usize)> {
    let characters: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < characters.len() {
        let start = at;
        let character = characters[at];
        let next = characters.get(at + 1).copied();
        if character == '/' && next == Some('/') {
            while at < characters.len() && characters[at] != '\n' {
                at += 1;
            }
        } else if character == '/' && next == Some('*') {
            at = after_block_comment(&characters, at);
        } else if character == '"' {
            at = after_string(&characters, at);
        } else if character == '\'' {
            at = after_quote(&characters, at);
        } else if character.is_alphabetic() || character == '_' {
            while at < characters.len()
                && (characters[at].is_alphanumeric() || characters[at] == '_')
            {
                at += 1;
            }
            let name: String = characters[start..at].iter().collect();
            let raw = matches!(name.as_str(), "r" | "br" | "cr");
            match characters.get(at) {
                Some('"') if matches!(name.as_str(), "b" | "c") => {
                    at = after_string(&characters, at)
                }
                Some('\'') if name == "b" => at = after_quote(&characters, at),
                Some('"' | '#') if raw => at = after_raw_string(&characters, at),
                _ => found.push((Token::Name(name), line)),
            }
        } else if character == ':' && next == Some(':') {
            found.push((Token::PathSeparator, line));
            at += 2;
        } else {
            if !character.is_whitespace() {
                found.push((Token::Symbol(character), line));
            }
            at += 1;
        }
        line += characters[start..at.min(characters.len())]
            .iter()
            .filter(|character| **character == '\n')
            .count();
    }
    found
}

fn after_block_comment(characters: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < characters.len() {
        match (characters[at], characters.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn after_string(characters: &[char], mut at: usize) -> usize {
    at += 1;
    while at < characters.len() && characters[at] != '"' {
        at += if characters[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn after_raw_string(characters: &[char], mut at: usize) -> usize {
    let hashes = characters[at..]
        .iter()
        .take_while(|character| **character == '#')
        .count();
    at += hashes;
    if characters.get(at) != Some(&'"') {
        return at; // a raw name such as r#type
    }
    at += 1;
    while at < characters.len() {
        if characters[at] == '"'
            && characters[at + 1..]
                .iter()
                .take_while(|character| **character == '#')
                .count()
                >= hashes
        {
            return at + 1 + hashes;
        }
        at += 1;
    }
    at
}

/// A character literal, or a lifetime.
fn after_quote(characters: &[char], at: usize) -> usize {
    match (characters.get(at + 1), characters.get(at + 2)) {
        (Some('\\'), _) => {
            let mut at = at + 3;
            while at < characters.len() && characters[at] != '\'' {
                at += 1;
            }
            at + 1
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at + 1,
    }
}

#[cfg(test)]
mod tests;
