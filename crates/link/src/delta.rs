//! What a record is a value of: the names by which a newer record replaces an older one.
//!
//! A Signal K delta holds values; each belongs to a context, a source and a path, and a newer value of the
//! three replaces the older one (Signal K 1.7, data model: deltas). A value at the empty path is an object
//! whose members are merged, so that each member stands for itself. Other JSON objects have no such names:
//! no record replaces another.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;

use crate::codec::{Keys, Node, Record};

/// Cap: values of one record that are looked at one by one; one with more has no names.
pub const MAX_PARTS: usize = 1_024;

/// One value of a record.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// A hash of context, source and path: a few bytes, however long these are.
    pub(crate) name: u64,
    /// Where the value lies: an element of an array, or a member of an object.
    at: usize,
    /// The update that it lies in.
    update: usize,
    /// It is a member of an object.
    is_member: bool,
    /// It is something said about values.
    is_meta: bool,
}

/// The names that a record has, if it is a Signal K delta.
pub(crate) fn names(record: &Record) -> Vec<u64> {
    parts(record).into_iter().map(|part| part.name).collect()
}

/// The values that a record has, if it is a Signal K delta.
pub(crate) fn parts(record: &Record) -> Vec<Part> {
    let nodes = &record.nodes;
    let context = member(nodes, 0, "context").and_then(|at| text(nodes, at));
    let Some(updates) = member(nodes, 0, "updates") else {
        return Vec::new();
    };
    // Once: there may be many updates, and a context is as long as its sender likes.
    let mut of_context = DefaultHasher::new();
    context.hash(&mut of_context);
    let mut parts = Vec::new();
    for update in elements(nodes, updates) {
        let source = source(nodes, update);
        for (kind, list) in ["values", "meta"].into_iter().enumerate() {
            let Some(list) = member(nodes, update, list) else {
                continue;
            };
            let mut head = of_context.clone();
            (&source, kind).hash(&mut head);
            for at in elements(nodes, list) {
                let Some(path) = member(nodes, at, "path").and_then(|at| text(nodes, at)) else {
                    continue;
                };
                let mut add = |of: (&str, &str), at, is_member| {
                    let mut name = head.clone();
                    of.hash(&mut name);
                    parts.push(Part {
                        name: name.finish(),
                        at,
                        update,
                        is_member,
                        is_meta: kind > 0,
                    });
                    parts.len() <= MAX_PARTS
                };
                let is_few = match member(nodes, at, "value") {
                    Some(value) if path.is_empty() && matches!(nodes[value], Node::Object(_)) => {
                        members(nodes, value).all(|(name, at)| add(("", name), at, true))
                    }
                    _ => add((path, ""), at, false),
                };
                if !is_few {
                    return Vec::new();
                }
            }
        }
    }
    parts
}

/// Who an update is of: its `$source`, or what makes one of its `source` (Signal K 1.7, data model: sources).
fn source(nodes: &[Node], update: usize) -> String {
    if let Some(source) = member(nodes, update, "$source").and_then(|at| text(nodes, at)) {
        return source.to_owned();
    }
    let Some(source) = member(nodes, update, "source") else {
        return String::new();
    };
    let parts = ["label", "src", "instance", "talker"].into_iter();
    let parts = parts.filter_map(|name| text(nodes, member(nodes, source, name)?));
    parts.collect::<Vec<_>>().join(".")
}

/// The record without the `source` of updates that name their `$source`. A Signal K server that is given both calls the
/// update by its own connection, and not by the `$source`; one that is given `$source` alone leaves it as it is.
#[must_use]
pub fn named_by_source(record: &Record) -> Record {
    let nodes = &record.nodes;
    let updates = member(nodes, 0, "updates");
    let updates = updates.into_iter().flat_map(|at| elements(nodes, at));
    let drop: BTreeSet<usize> = updates
        .filter(|update| member(nodes, *update, "$source").is_some())
        .filter_map(|update| member(nodes, update, "source"))
        .collect();
    if drop.is_empty() {
        return record.clone();
    }
    let mut left = Vec::with_capacity(nodes.len());
    copy(nodes, 0, &drop, &mut left);
    Record { nodes: left.into() }
}

/// The path of a value, and where the value lies; `None` for one at the empty path, and for what is said about values.
pub(crate) fn value_of<'a>(record: &'a Record, part: &Part) -> Option<(&'a str, Range<usize>)> {
    let nodes = &record.nodes;
    if part.is_member || part.is_meta {
        return None;
    }
    let path = text(nodes, member(nodes, part.at, "path")?)?;
    let value = member(nodes, part.at, "value")?;
    Some((path, value..end_of(nodes, value)))
}

/// The paths of a record's values and of what is said about them.
pub(crate) fn paths(record: &Record) -> impl Iterator<Item = &str> {
    let nodes = &record.nodes;
    let updates = member(nodes, 0, "updates");
    let updates = updates.into_iter().flat_map(|at| elements(nodes, at));
    updates.flat_map(move |update| {
        let lists = ["values", "meta"].into_iter();
        let lists = lists.filter_map(move |list| member(nodes, update, list));
        let values = lists.flat_map(move |list| elements(nodes, list));
        values.filter_map(move |at| text(nodes, member(nodes, at, "path")?))
    })
}

/// When the first of a record's updates was made, in milliseconds since 1970, if it says so in Signal K's usual
/// spelling.
#[must_use]
pub fn timestamp(record: &Record) -> Option<i64> {
    let nodes = &record.nodes;
    let update = elements(nodes, member(nodes, 0, "updates")?).next()?;
    match nodes[member(nodes, update, "timestamp")?] {
        Node::Time(millis) => Some(millis),
        _ => None,
    }
}

/// The record without these values; `None` if nothing is left of it.
pub(crate) fn without(record: &Record, gone: &[&Part]) -> Option<Record> {
    let nodes = &record.nodes;
    let mut drop: BTreeSet<usize> = gone.iter().map(|part| part.at).collect();
    // What is empty by then says nothing.
    for update in gone.iter().map(|part| part.update).collect::<BTreeSet<_>>() {
        let mut is_left = false;
        for list in ["values", "meta"] {
            for at in member(nodes, update, list)
                .into_iter()
                .flat_map(|list| elements(nodes, list))
            {
                let value = member(nodes, at, "value");
                let mut inner = value.into_iter().flat_map(|at| members(nodes, at));
                let had = value.is_some_and(
                    |at| matches!(&nodes[at], Node::Object(keys) if !keys.names.is_empty()),
                );
                if had && inner.all(|(_, at)| drop.contains(&at)) {
                    drop.insert(at);
                }
                is_left |= !drop.contains(&at);
            }
        }
        if !is_left {
            drop.insert(update);
        }
    }
    let updates = member(nodes, 0, "updates")?;
    if elements(nodes, updates).all(|update| drop.contains(&update)) {
        return None;
    }
    let mut left = Vec::with_capacity(nodes.len());
    copy(nodes, 0, &drop, &mut left);
    Some(Record { nodes: left.into() })
}

/// Copies a value but for what is dropped inside it.
fn copy(nodes: &[Node], at: usize, drop: &BTreeSet<usize>, out: &mut Vec<Node>) {
    let place = out.len();
    out.push(nodes[at].clone());
    match &nodes[at] {
        Node::Array(_) => {
            let kept: Vec<usize> = elements(nodes, at)
                .filter(|at| !drop.contains(at))
                .collect();
            for at in &kept {
                copy(nodes, *at, drop, out);
            }
            out[place] = Node::Array(kept.len() as u32);
        }
        Node::Object(keys) => {
            let kept: Vec<(&str, usize)> = members(nodes, at)
                .filter(|(_, at)| !drop.contains(at))
                .collect();
            for (_, at) in &kept {
                copy(nodes, *at, drop, out);
            }
            if kept.len() < keys.names.len() {
                let names = kept.iter().map(|(name, _)| Box::from(*name)).collect();
                out[place] = Node::Object(Arc::new(Keys::new(names)));
            }
        }
        _ => {}
    }
}

/// The index after a value and all that is inside it.
fn end_of(nodes: &[Node], mut at: usize) -> usize {
    let mut open = 1;
    while open > 0 && at < nodes.len() {
        open += children(&nodes[at]);
        open -= 1;
        at += 1;
    }
    at
}

fn children(node: &Node) -> usize {
    match node {
        Node::Array(len) => *len as usize,
        Node::Object(keys) => keys.names.len(),
        _ => 0,
    }
}

/// Where the values inside a value begin.
fn inside(nodes: &[Node], at: usize) -> impl Iterator<Item = usize> + '_ {
    let mut next = at + 1;
    (0..children(&nodes[at])).map(move |_| {
        let here = next;
        next = end_of(nodes, here);
        here
    })
}

fn elements(nodes: &[Node], at: usize) -> impl Iterator<Item = usize> + '_ {
    let is_array = matches!(nodes[at], Node::Array(_));
    inside(nodes, at).filter(move |_| is_array)
}

fn members(nodes: &[Node], at: usize) -> impl Iterator<Item = (&str, usize)> + '_ {
    let names = match &nodes[at] {
        Node::Object(keys) => &keys.names[..],
        _ => &[],
    };
    names.iter().map(|name| &**name).zip(inside(nodes, at))
}

fn member(nodes: &[Node], at: usize, name: &str) -> Option<usize> {
    let mut members = members(nodes, at);
    members.find(|(key, _)| *key == name).map(|(_, at)| at)
}

fn text(nodes: &[Node], at: usize) -> Option<&str> {
    match &nodes[at] {
        Node::Text(text) => Some(&text.text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Record {
        Record::parse(text.as_bytes()).unwrap()
    }

    fn names(text: &str) -> Vec<u64> {
        parts(&record(text)).iter().map(|part| part.name).collect()
    }

    const TWO: &str = r#"{"context":"c","updates":[{"$source":"s","timestamp":"t","values":[{"path":"a","value":1},{"path":"b","value":{"x":2}}]},{"values":[{"path":"","value":{"name":"n","mmsi":"m"}}],"meta":[{"path":"a","value":{"units":"m"}}]}]}"#;

    #[test]
    fn a_value_is_known_by_context_source_and_path() {
        let update = |context: &str, source: &str, list: &str, path: &str, value: &str| {
            let text = format!(
                r#"{{"context":"{context}","updates":[{{{source}"{list}":[{{"path":"{path}","value":{value}}}]}}]}}"#
            );
            names(&text)[0]
        };
        let (s, none) = (r#""$source":"s","#, "");
        let expected = [
            update("c", s, "values", "a", "9"),
            update("c", s, "values", "b", "[]"),
            update("c", none, "values", "", r#"{"name":1}"#),
            update("c", none, "values", "", r#"{"mmsi":1}"#),
            update("c", none, "meta", "a", "{}"),
        ];
        assert_eq!(names(TWO), expected);
        let others = [
            update("d", s, "values", "a", "9"),
            update("c", none, "values", "a", "9"),
            update("c", none, "values", "name", "9"),
        ];
        let all: BTreeSet<u64> = expected.into_iter().chain(others).collect();
        assert_eq!(all.len(), 8);
        assert_eq!(paths(&record(TWO)).collect::<Vec<_>>(), ["a", "b", "", "a"]);
        assert!(names(r#"{"temperature":3}"#).is_empty());
        assert!(names(r#"{"updates":3}"#).is_empty());
        assert!(names(r#"{"updates":[3,{"values":[4,{"value":1}]}]}"#).is_empty());
    }

    #[test]
    fn an_update_without_a_source_of_its_own_is_known_by_what_makes_one() {
        let text = |source: &str| {
            format!(r#"{{"updates":[{{{source}"values":[{{"path":"a","value":1}}]}}]}}"#)
        };
        let both = text(r#""$source":"n2k.3","source":{"label":"n2k","src":"4","pgn":127250},"#);
        assert_eq!(names(&both), names(&text(r#""$source":"n2k.3","#)));
        let object = text(r#""source":{"label":"n2k","src":"4","pgn":127250},"#);
        assert_eq!(names(&object), names(&text(r#""$source":"n2k.4","#)));
        assert_eq!(names(&text(r#""source":7,"#)), names(&text("")));
        let named = |text: &str| named_by_source(&record(text)).to_json();
        assert_eq!(named(&both), text(r#""$source":"n2k.3","#));
        assert_eq!(named(&object), object);
        assert_eq!(named(r#"{"updates":[3,[]]}"#), r#"{"updates":[3,[]]}"#);
    }

    #[test]
    fn long_names_take_no_more_memory_than_short_ones() {
        let long = "c".repeat(300_000);
        let value = |at: usize| format!(r#""k{at}":1"#);
        let of = |count: usize| {
            let values: Vec<String> = (0..count).map(value).collect();
            let text = format!(
                r#"{{"context":"{long}","updates":[{{"values":[{{"path":"","value":{{{}}}}}]}}]}}"#,
                values.join(",")
            );
            parts(&record(&text))
        };
        let parts = of(MAX_PARTS);
        let names: BTreeSet<u64> = parts.iter().map(|part| part.name).collect();
        assert_eq!(names.len(), MAX_PARTS);
        // It stops at the first that is too many.
        assert!(of(15_000).capacity() == 0);
    }

    #[test]
    fn a_record_of_too_many_values_has_no_names() {
        let of = |count: usize| {
            let value = |at: usize| format!(r#"{{"path":"p{at}","value":1}}"#);
            let values: Vec<String> = (0..count).map(value).collect();
            let text = format!(r#"{{"updates":[{{"values":[{}]}}]}}"#, values.join(","));
            parts(&record(&text)).len()
        };
        assert_eq!(of(MAX_PARTS), MAX_PARTS);
        assert_eq!(of(MAX_PARTS + 1), 0);
    }

    #[test]
    fn what_is_left_of_a_record_is_whole() {
        let record = record(TWO);
        let parts = parts(&record);
        let left = |gone: &[usize]| {
            let gone: Vec<&Part> = gone.iter().map(|at| &parts[*at]).collect();
            without(&record, &gone).map(|record| record.to_json())
        };
        assert_eq!(left(&[]).unwrap(), record.to_json());
        assert_eq!(
            left(&[1, 2, 4]).unwrap(),
            r#"{"context":"c","updates":[{"$source":"s","timestamp":"t","values":[{"path":"a","value":1}]},{"values":[{"path":"","value":{"mmsi":"m"}}],"meta":[]}]}"#
        );
        assert_eq!(
            left(&[2, 3, 4]).unwrap(),
            r#"{"context":"c","updates":[{"$source":"s","timestamp":"t","values":[{"path":"a","value":1},{"path":"b","value":{"x":2}}]}]}"#
        );
        assert_eq!(left(&[0, 1, 2, 3, 4]), None);
    }
}
