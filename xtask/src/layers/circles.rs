//! Circles of files inside a crate: files that can only be read together.
//!
//! The arrows are `tree::Uses` without tests; a parent that calls a child which uses the parent's
//! types is such a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::tree::{Tree, Uses};

/// The arrows of a crate: where one file first uses another.
pub(super) type Arrows = BTreeMap<(String, String), String>;

/// The arrows between the files of one target.
pub(super) fn arrows(tree: &Tree) -> Arrows {
    let mut found = Arrows::new();
    for used in Uses::of(tree).between_files {
        let path = |file: usize| tree.files[file].path.clone();
        found
            .entry((path(used.from), path(used.to)))
            .or_insert_with(|| format!("line {}: {}", used.line, used.what));
    }
    found
}

/// Only where they lead from and to.
pub(super) fn ends(arrows: &Arrows) -> impl Iterator<Item = (&str, &str)> {
    arrows.keys().map(|(from, to)| (from.as_str(), to.as_str()))
}

/// Every circle, with why its files use one another.
pub(super) fn broken(arrows: &Arrows) -> Vec<String> {
    let mut broken = Vec::new();
    let graph = Graph::new(ends(arrows));
    for circle in graph.circles() {
        let mut message = format!("a circle of {} files:", circle.len());
        for pair in graph.shortest_circle(&circle).windows(2) {
            let why = arrows.get(&(pair[0].to_owned(), pair[1].to_owned()));
            message += &format!(
                "\n      {} → {} ({})",
                pair[0],
                pair[1],
                why.map_or("", String::as_str)
            );
        }
        broken.push(message);
    }
    broken
}

/// Groups of files that all reach one another; each group holds at least one circle.
pub(super) fn circles<'a>(
    arrows: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<Vec<&'a str>> {
    Graph::new(arrows).circles()
}

/// Files and the files that each uses.
struct Graph<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> Graph<'a> {
    fn new(arrows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in arrows {
            next.entry(from).or_default().insert(to);
        }
        Self(next)
    }

    fn next(&self, file: &str) -> impl Iterator<Item = &'a str> {
        self.0.get(file).into_iter().flatten().copied()
    }

    /// Everything that arrows lead to from `from`; itself only if a circle leads back.
    fn reached(&self, from: &str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&str> = vec![from];
        while let Some(file) = open.pop() {
            for to in self.next(file) {
                if found.insert(to) {
                    open.push(to);
                }
            }
        }
        found
    }

    fn circles(&self) -> Vec<Vec<&'a str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> = self
            .0
            .keys()
            .map(|from| (*from, self.reached(from)))
            .collect();
        let mut found: Vec<Vec<&str>> = Vec::new();
        for (file, reachable) in &reach {
            if !reachable.contains(file) || found.iter().any(|circle| circle.contains(file)) {
                continue;
            }
            let circle = reachable.iter().copied();
            found.push(
                circle
                    .filter(|other| reach.get(other).is_some_and(|back| back.contains(file)))
                    .collect(),
            );
        }
        found
    }

    /// The files of the shortest way round within a circle; the first is also the last.
    fn shortest_circle(&self, circle: &[&'a str]) -> Vec<&'a str> {
        circle
            .iter()
            .filter_map(|start| self.way_round(start))
            .min_by_key(Vec::len)
            .unwrap_or_default()
    }

    fn way_round(&self, start: &'a str) -> Option<Vec<&'a str>> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(file) = open.pop_front() {
            for to in self.next(file) {
                if to == start {
                    let mut way = vec![start, file];
                    while let Some(previous) = before.get(way[way.len() - 1]) {
                        way.push(previous);
                    }
                    way.reverse();
                    return Some(way);
                }
                if !before.contains_key(to) {
                    before.insert(to, file);
                    open.push_back(to);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
