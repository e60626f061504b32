use super::{Scope, Sources, Tree, Uses};

fn sources(files: &[(&str, &str)]) -> Sources {
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

fn tree(files: &[(&str, &str)], scope: Scope) -> Tree {
    Tree::read(&sources(files), files[0].0, scope).unwrap()
}

/// `a.rs → b.rs` for every use of one file by another, each once.
fn arrows(files: &[(&str, &str)]) -> Vec<String> {
    let tree = tree(files, Scope::Shipped);
    let mut found: Vec<String> = Uses::of(&tree)
        .between_files
        .iter()
        .map(|used| {
            format!(
                "{} → {}",
                tree.files[used.from].path, tree.files[used.to].path
            )
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn crate_self_and_super_lead_to_the_file_that_defines_the_name() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "fn f() { crate::b::g(); super::c::deep::h(); }"),
        ("b.rs", "pub fn g() {}"),
        ("c/mod.rs", "pub mod deep;\nfn f() { self::deep::h(); }"),
        ("c/deep.rs", "pub fn h() {}"),
    ]);
    assert_eq!(
        found,
        ["a.rs → b.rs", "a.rs → c/deep.rs", "c/mod.rs → c/deep.rs"]
    );
}

#[test]
fn a_use_tree_leads_through_groups_renames_and_globs() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;"),
        (
            "a.rs",
            "use crate::{b::{self, One as Other}, c::*};\nfn f(x: Other, y: Three) { b::two(); }",
        ),
        ("b.rs", "pub struct One;\npub fn two() {}"),
        ("c.rs", "pub struct Three;"),
        ("d.rs", ""),
    ]);
    assert_eq!(found, ["a.rs → b.rs", "a.rs → c.rs"]);
}

#[test]
fn a_re_export_is_no_use_of_the_file_that_re_exports() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::One;"),
        ("a.rs", "pub struct One;"),
        ("b.rs", "use crate::One;\nfn f(x: One) {}"),
    ]);
    assert_eq!(found, ["b.rs → a.rs"]);
}

#[test]
fn a_trait_is_used_by_its_import() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "pub trait Speak { fn speak(&self) {} }"),
        (
            "b.rs",
            "use crate::a::Speak as _;\nfn f(x: u8) { x.speak(); }",
        ),
    ]);
    assert_eq!(found, ["b.rs → a.rs"]);
}

#[test]
fn a_call_on_self_leads_to_the_impl_that_holds_the_method() {
    let found = arrows(&[
        (
            "lib.rs",
            "mod input;\npub struct Machine;\nimpl Machine { pub fn run(&self) { self.step(); Self::rest(); } }",
        ),
        (
            "input.rs",
            "use crate::Machine;\nimpl Machine { pub(crate) fn step(&self) {} pub(crate) fn rest() {} }",
        ),
    ]);
    assert_eq!(found, ["input.rs → lib.rs", "lib.rs → input.rs"]);
}

#[test]
fn the_arguments_of_macros_are_read() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;"),
        ("a.rs", "pub fn f() -> u8 { 0 }"),
        ("b.rs", "pub enum Kind { One, Two }"),
        (
            "c.rs",
            "pub struct S;\nimpl S { fn run(&self) { select! { x => self.step() } } }",
        ),
        (
            "d.rs",
            "fn g(x: crate::b::Kind) { assert!(crate::a::f() > 1); }\nimpl crate::c::S { pub(crate) fn step(&self) {} }",
        ),
    ]);
    assert_eq!(
        found,
        ["c.rs → d.rs", "d.rs → a.rs", "d.rs → b.rs", "d.rs → c.rs"]
    );
}

#[test]
fn names_that_a_macro_makes_belong_to_the_module_of_the_macro() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "make!(One);"),
        ("b.rs", "use crate::a::One;\nfn f(x: One) {}"),
    ]);
    assert_eq!(found, ["b.rs → a.rs"]);
}

#[test]
fn comments_attributes_visibilities_and_local_names_use_nothing() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;\nmod state;"),
        ("a.rs", "pub struct One;"),
        (
            "b.rs",
            "/// [`crate::a::One`]\n#[doc = \"crate::a::One\"]\npub(in crate::b) fn f() { let state = 1; g(state); \"crate::a::One\"; }\nfn g(x: u8) {}",
        ),
        ("state.rs", ""),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn what_only_tests_and_fuzzers_compile_is_left_out() {
    let files = [
        (
            "lib.rs",
            "mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(all(test, unix))]\nmod x { use crate::a::f; }\n#[cfg(any(test, fuzzing))]\nfn seed() { a::f() }\nstruct S { #[cfg(test)] x: a::T }\nfn g() { #[cfg(test)] a::f(); #[cfg(any(test, debug_assertions))] {} }",
        ),
        ("a.rs", "pub fn f() {}\npub struct T;"),
        ("tests.rs", "use super::a::f;\nfn t() { f() }"),
    ];
    assert_eq!(arrows(&files), Vec::<String>::new());
    let paths = |scope| {
        tree(&files, scope)
            .files
            .iter()
            .map(|file| file.path.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(Scope::Shipped), ["lib.rs", "a.rs"]);
    assert_eq!(paths(Scope::WithTests), ["lib.rs", "a.rs", "tests.rs"]);
}

#[test]
fn not_test_and_features_ship() {
    let found = arrows(&[
        ("lib.rs", "mod a;\n#[cfg(not(test))]\nfn f() { a::f() }"),
        (
            "a.rs",
            "pub fn f() {}\n#[cfg(feature = \"test\")]\nfn g() { crate::f() }",
        ),
    ]);
    assert_eq!(found, ["a.rs → lib.rs", "lib.rs → a.rs"]);
}

#[test]
fn a_path_attribute_and_inline_modules_find_their_files() {
    let found = arrows(&[
        (
            "src/bin/tool.rs",
            "#[path = \"../counting.rs\"]\nmod counting;\nmod inline { pub(crate) mod deep; }\nfn f() { counting::g(); inline::deep::h(); }",
        ),
        ("src/counting.rs", "pub fn g() {}"),
        ("src/bin/inline/deep.rs", "pub fn h() { super::super::f() }"),
    ]);
    assert_eq!(
        found,
        [
            "src/bin/inline/deep.rs → src/bin/tool.rs",
            "src/bin/tool.rs → src/bin/inline/deep.rs",
            "src/bin/tool.rs → src/counting.rs"
        ]
    );
}

#[test]
fn a_circle_of_imports_ends() {
    let found = arrows(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "pub use crate::b::*;\nfn f(x: Nowhere) {}"),
        ("b.rs", "pub use crate::a::*;\npub use crate::a::Gone;"),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn crates_that_are_named_are_known_and_local_names_are_not() {
    let tree = tree(
        &[(
            "lib.rs",
            "use towline_wire::Time;\nfn f(x: ::towline_sim::Link) { let towline = 1; log!(towline_lab::x, towline); }",
        )],
        Scope::Shipped,
    );
    let foreign = Uses::of(&tree).foreign;
    assert!(foreign.contains("towline_wire"));
    assert!(foreign.contains("towline_sim"));
    assert!(foreign.contains("towline_lab"));
    assert!(!foreign.contains("towline"));
}

#[test]
fn a_file_that_does_not_parse_or_exist_is_named_with_its_line() {
    let read = |files: &[(&str, &str)]| Tree::read(&sources(files), "lib.rs", Scope::Shipped).err();
    let broken = read(&[("lib.rs", "mod a;"), ("a.rs", "fn f() {\n  let = 1;\n}")]).unwrap();
    assert!(broken.starts_with("a.rs:2: "), "{broken}");
    let absent = read(&[("lib.rs", "mod a;")]).unwrap();
    assert!(absent.starts_with("a/mod.rs: no such file"), "{absent}");
}

/// The paths that a file of the module `connection::acks` names, made absolute, with their lines.
fn named(text: &str) -> Vec<(String, usize)> {
    let tree = tree(
        &[
            ("lib.rs", "mod connection { mod acks; }"),
            ("connection/acks.rs", text),
        ],
        Scope::WithTests,
    );
    Uses::of(&tree)
        .named
        .into_iter()
        .map(|named| (named.segments.join("::"), named.line))
        .collect()
}

fn named_paths(text: &str) -> Vec<String> {
    named(text).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn use_trees_become_one_absolute_path_each() {
    let text =
        "use super::{component::Writer, streams::{self, id}, paths as p};\nuse crate::error::*;";
    assert_eq!(
        named_paths(text),
        [
            "connection::component::Writer",
            "connection::streams",
            "connection::streams::id",
            "connection::paths",
            "error::*"
        ]
    );
}

#[test]
fn paths_inside_expressions_are_seen_and_foreign_ones_are_not() {
    let text = "fn f() { let x = super::streams::Streams::new(); bytes::Bytes::new(); 5 }";
    assert_eq!(named_paths(text), ["connection::streams::Streams::new"]);
}

#[test]
fn inline_modules_shift_super_and_end_with_their_brace() {
    let text = "mod tests { use super::super::streams; fn f() { {} } }\nuse super::cids;";
    assert_eq!(
        named_paths(text),
        ["connection::streams", "connection::cids"]
    );
}

#[test]
fn comments_strings_and_lifetimes_name_nothing() {
    let text = "// use super::streams;\n/* super::cids /* nested */ */ fn f<'a>(x: &'a str) { \"super::paths::x\"; r#\"crate::a\"#; '\\''; '\"'; }\nuse super::events;";
    assert_eq!(named_paths(text), ["connection::events"]);
}

#[test]
fn lines_are_those_of_the_file() {
    assert_eq!(
        named("\n\n// x\nuse super::cids;\n"),
        [("connection::cids".to_owned(), 4)]
    );
}
