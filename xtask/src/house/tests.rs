use serde_json::json;

use super::Figures;
use super::measure::{Panics, code_lines, functions, large, size};
use crate::tree::{Scope, Sources, Tree};
use crate::workspace::Workspace;

fn planted(files: &[(&str, &str)]) -> Tree {
    let sources: Sources = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    Tree::read(&sources, files[0].0, Scope::Shipped).unwrap()
}

fn one(text: &str) -> Tree {
    planted(&[("lib.rs", text)])
}

/// A function with this many lines, the first and the last among them.
fn function(name: &str, lines: usize) -> String {
    format!("fn {name}() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
}

#[test]
fn a_line_of_code_holds_a_token_that_ships() {
    let text = "//! Module.\n\n/// Doc.\n/** More. */\n#[derive(Debug)] // comment\nstruct S {\n    x: u8, /* one\n    two */\n}\n\nconst T: &str = \"a\n// not a comment\";\n#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n";
    // derive, struct, x, }, and both lines of the string
    assert_eq!(code_lines(&one(text).files[0]), 6);
}

#[test]
fn fields_and_methods_of_a_type_are_counted_in_all_files() {
    let tree = planted(&[
        (
            "lib.rs",
            "mod more;\nstruct S { a: u8, b: u8, #[cfg(test)] c: u8 }\nimpl S { pub fn f(&self) {} pub(crate) fn g(&self) {} const X: u8 = 1; }\nimpl Drop for S { fn drop(&mut self) {} }\n#[cfg(test)]\nimpl S { fn t(&self) {} }",
        ),
        (
            "more.rs",
            "impl super::S { fn h() {} }\nstruct Other;\nimpl Other { fn i() {} }",
        ),
    ]);
    let found = size(&tree, "S").unwrap();
    assert_eq!(
        (found.fields, found.methods, found.public, found.files),
        (2, 3, 1, 2)
    );
    assert!(size(&tree, "Gone").is_none());
}

#[test]
fn a_function_is_as_long_as_it_looks() {
    let text = "/// Doc.\n#[inline]\npub fn f(\n    x: u8,\n) {\n    // comment\n\n    fn inner() {}\n}\n\nimpl S {\n    fn m(&self) {}\n}\n\ntrait T {\n    fn given(&self) {\n    }\n    fn asked(&self);\n}\n\n#[test]\nfn t() {}\n";
    let found: Vec<_> = functions(&one(text).files[0])
        .into_iter()
        .map(|function| (function.name, function.line, function.lines))
        .collect();
    assert_eq!(
        found,
        [
            ("f".to_owned(), 3, 7),
            ("inner".to_owned(), 8, 1),
            ("S::m".to_owned(), 12, 1),
            ("T::given".to_owned(), 16, 2)
        ]
    );
}

#[test]
fn a_function_says_why_above_itself_or_inside() {
    for (text, says) in [
        ("/// One function because of x.\nfn f() {}", true),
        ("// One function because of x.\n#[inline]\nfn f() {}", true),
        ("fn f() {\n    // One function because of x.\n}", true),
        ("fn f() { \"One function because\"; }", false),
        ("// One function because of x.\n\nfn f() {}", false),
        ("fn f() {}\n// One function because of x.", false),
    ] {
        assert_eq!(functions(&one(text).files[0])[0].says_why, says, "{text}");
    }
}

#[test]
fn a_long_file_is_listed_with_whether_it_says_why() {
    let long = |top: &str| format!("{top}{}", "\n".repeat(600));
    let file = |text: &str| large(&one(text).files[0], 7, 600);
    assert_eq!(file(&"\n".repeat(600)), None);
    assert!(!file(&long("fn f() {}\n")).unwrap().says_why);
    let explained = file(&long("//! One file because it is.\n")).unwrap();
    assert_eq!(
        (explained.lines, explained.code, explained.says_why),
        (601, 7, true)
    );
}

#[test]
fn unwraps_and_expects_are_counted_where_they_can_panic() {
    let text = "#[expect(dead_code)]\nfn f() { a.unwrap(); b.expect(\"x\"); c.expect(&format!(\"{y}\")); assert!(d.unwrap_err() == e.expect(\"z\")); }\nfn g() { der.expect(SEQUENCE); x.unwrap_or(1); \".unwrap()\"; }\n#[cfg(test)]\nfn t() { a.unwrap(); }";
    let mut found = Panics::default();
    found.add(1000, &one(text).files[0].syntax);
    assert_eq!((found.unwraps, found.expects), (2, 3));
    assert!((found.per_thousand() - 5.0).abs() < 1e-9);
}

/// An engine that misses every mark but the size of its types.
fn bad_house() -> Workspace {
    let crate_of = |name: &str, folder: &str| {
        json!({
            "name": name,
            "dependencies": [],
            "targets": [{ "kind": ["lib"], "src_path": format!("{folder}/lib.rs") }],
        })
    };
    let metadata = json!({ "packages": [
        crate_of("towline-quic", "quic"),
        crate_of("towline-recovery", "recovery"),
        crate_of("towline", "towline"),
    ]});
    let engine = format!(
        "mod a;\npub struct Connection {{ x: u8 }}\npub struct Streams;\nfn f() {{ a::f().unwrap().unwrap() }}\n{}{}",
        function("short", 80),
        function("long", 81)
    );
    let sources = [
        ("quic/lib.rs", engine),
        (
            "quic/a.rs",
            format!(
                "fn f() {{ crate::f() }}\n{}",
                "const X: u8 = 1;\n".repeat(600)
            ),
        ),
        (
            "recovery/lib.rs",
            "pub struct Recovery;\npub struct PathState;".to_owned(),
        ),
        ("towline/lib.rs", function("long_but_not_sans_io", 200)),
    ]
    .map(|(path, text)| (path.to_owned(), text))
    .into();
    Workspace::new(&metadata, sources)
}

#[test]
fn missed_marks_are_named() {
    let missed = Figures::of(&bad_house()).unwrap().missed();
    assert_eq!(missed.len(), 4, "{missed:?}");
    assert!(missed[0].contains("of the sans-I/O code lies in files over 600 lines"));
    assert_eq!(missed[1], "1 function(s) over 80 lines do not say why");
    assert!(missed[2].starts_with("towline-quic has "), "{missed:?}");
    assert_eq!(missed[3], "1 circle(s) of files, the mark is 0");
}

#[test]
fn a_house_in_order_misses_nothing_and_a_type_too_large_or_gone_is_missed() {
    let house = |connection: &str| {
        let mut workspace = bad_house();
        workspace.sources.insert(
            "quic/lib.rs".to_owned(),
            format!("{connection}\npub struct Streams;"),
        );
        Figures::of(&workspace).unwrap().missed()
    };
    let fields = |count| {
        let fields: String = (0..count).map(|field| format!("f{field}: u8,")).collect();
        house(&format!("pub struct Connection {{ {fields} }}"))
    };
    assert_eq!(fields(16), Vec::<String>::new());
    assert_eq!(fields(17), ["Connection has 17 fields, the mark is 16"]);
    assert_eq!(
        house(""),
        ["towline-quic has no one struct Connection (the list is in xtask/src/house.rs)"]
    );
}

#[test]
fn text_and_json_hold_the_same_figures() {
    let figures = Figures::of(&bad_house()).unwrap();
    let json = figures.json();
    assert_eq!(json["types"][0]["fields"], 1);
    assert_eq!(json["functions"]["unexplained"], 1);
    assert_eq!(json["functions"]["longest"][0]["lines"], 81);
    assert_eq!(json["circles"], json!([["quic/a.rs", "quic/lib.rs"]]));
    assert_eq!(json["long_files"]["files"][0]["path"], "quic/a.rs");
    assert_eq!(json["missed"].as_array().unwrap().len(), 4);
    let text = figures.text();
    for part in [
        "Connection     1 fields",
        "81 lines: long (quic/lib.rs:",
        "601 lines,   601 of code: quic/a.rs",
        "house: 4 mark(s) missed",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}
