use super::{Arrows, arrows, broken, circles, ends};
use crate::tree::{Scope, Sources, Tree};

fn planted(files: &[(&str, &str)]) -> Arrows {
    let sources: Sources = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    arrows(&Tree::read(&sources, files[0].0, Scope::Shipped).unwrap())
}

const SIBLINGS: &[(&str, &str)] = &[
    ("lib.rs", "mod a;\nmod b;\nmod c;"),
    ("a.rs", "pub fn f() { crate::b::g() }"),
    ("b.rs", "use super::c;\npub fn g() { c::h() }"),
    ("c.rs", "use crate::a::f;\n\npub fn h() { f() }"),
];

#[test]
fn siblings_that_use_one_another_in_a_ring_are_a_circle() {
    assert_eq!(
        broken(&planted(SIBLINGS)),
        [
            "a circle of 3 files:\n      a.rs → b.rs (line 1: crate::b::g)\n      b.rs → c.rs (line 2: c::h)\n      c.rs → a.rs (line 3: f)"
        ]
    );
}

#[test]
fn a_child_that_uses_its_parents_types_closes_a_circle_only_when_the_parent_calls_it() {
    let child = "use super::Thing;\npub fn act(thing: &Thing) {}";
    let calls = planted(&[
        ("lib.rs", "mod parent;"),
        (
            "parent/mod.rs",
            "mod child;\npub struct Thing;\nfn f(x: &Thing) { child::act(x) }",
        ),
        ("parent/child.rs", child),
    ]);
    assert_eq!(broken(&calls).len(), 1);
    let offers = planted(&[
        ("lib.rs", "mod parent;"),
        (
            "parent/mod.rs",
            "mod child;\npub use child::act;\npub struct Thing;",
        ),
        ("parent/child.rs", child),
    ]);
    assert_eq!(broken(&offers), Vec::<String>::new());
}

#[test]
fn a_type_whose_methods_call_each_other_across_files_is_a_circle() {
    let found = planted(&[
        (
            "lib.rs",
            "mod input;\npub struct Machine;\nimpl Machine { pub fn run(&self) { self.step() } }",
        ),
        (
            "input.rs",
            "use crate::Machine;\nimpl Machine { pub(crate) fn step(&self) {} }",
        ),
    ]);
    assert_eq!(
        broken(&found),
        [
            "a circle of 2 files:\n      input.rs → lib.rs (line 2: Machine)\n      lib.rs → input.rs (line 3: self.step())"
        ]
    );
}

#[test]
fn a_circle_that_only_tests_close_is_none() {
    let found = planted(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "pub fn f() { crate::b::g() }"),
        (
            "b.rs",
            "pub fn g() {}\n#[cfg(test)]\nmod tests { fn t() { crate::a::f() } }",
        ),
    ]);
    assert_eq!(broken(&found), Vec::<String>::new());
}

#[test]
fn files_in_two_rings_that_share_one_are_one_group() {
    let names = ["a", "b", "c", "d", "e"];
    let found: Arrows = [(0, 1), (1, 0), (1, 2), (2, 1), (3, 0), (2, 4)]
        .map(|(from, to): (usize, usize)| {
            (
                (names[from].to_owned(), names[to].to_owned()),
                String::new(),
            )
        })
        .into();
    assert_eq!(circles(ends(&found)), [["a", "b", "c"]]);
}
