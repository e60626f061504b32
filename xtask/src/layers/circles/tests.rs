use super::{Allowed, Arrows, arrows, broken, circles, ends};
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

const BACK: Allowed = Allowed {
    to: "a.rs",
    from: &["c.rs"],
    why: "for the test",
};

#[test]
fn siblings_that_use_one_another_in_a_ring_are_a_circle() {
    assert_eq!(
        broken(&planted(SIBLINGS), &[]),
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
    assert_eq!(broken(&calls, &[]).len(), 1);
    let offers = planted(&[
        ("lib.rs", "mod parent;"),
        (
            "parent/mod.rs",
            "mod child;\npub use child::act;\npub struct Thing;",
        ),
        ("parent/child.rs", child),
    ]);
    assert_eq!(broken(&offers, &[]), Vec::<String>::new());
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
        broken(&found, &[]),
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
    assert_eq!(broken(&found, &[]), Vec::<String>::new());
}

#[test]
fn an_allowed_arrow_opens_its_circle_and_no_other() {
    let mut found = planted(SIBLINGS);
    assert_eq!(broken(&found, &[BACK]), Vec::<String>::new());
    found.insert(("b.rs".into(), "a.rs".into()), "line 9: crate::a::f".into());
    assert_eq!(broken(&found, &[BACK]).len(), 1);
}

#[test]
fn an_allowed_arrow_that_closes_no_circle_any_more_must_go() {
    let mut found = planted(SIBLINGS);
    found.remove(&("a.rs".to_owned(), "b.rs".to_owned()));
    let stale = [
        "c.rs → a.rs is allowed to close a circle (for the test), and closes none: take it from the list in xtask/src/layers/circles/allowed.rs",
    ];
    assert_eq!(broken(&found, &[BACK]), stale);
    found.remove(&("c.rs".to_owned(), "a.rs".to_owned()));
    assert_eq!(broken(&found, &[BACK]), stale);
}

#[test]
fn of_two_allowed_arrows_for_one_circle_one_must_go_and_one_stays() {
    let second = Allowed {
        to: "c.rs",
        from: &["b.rs"],
        why: "for the test",
    };
    let found = planted(SIBLINGS);
    let complaints = broken(&found, &[BACK, second]);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("c.rs → a.rs is allowed"));
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
