use serde_json::json;

use super::{Allowed, broken};
use crate::workspace::Workspace;

/// A crate `towline-app` that declares `towline-wire` in one list, and this source.
fn planted(kind: Option<&str>, files: &[(&str, &str)]) -> Workspace {
    let target = |kind: &str, path: &str| json!({ "kind": [kind], "src_path": path });
    let mut targets = vec![target("lib", "src/lib.rs")];
    for (path, _) in files.iter().filter(|(path, _)| path.starts_with("tests/")) {
        targets.push(target("test", path));
    }
    let metadata = json!({ "packages": [
        {
            "name": "towline-app",
            "dependencies": [
                { "name": "towline-wire", "kind": kind, "rename": null },
                { "name": "bytes", "kind": null, "rename": null },
            ],
            "targets": targets,
        },
        { "name": "towline-wire", "dependencies": [], "targets": [] },
    ]});
    let sources = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    Workspace::new(&metadata, sources)
}

fn complaints(kind: Option<&str>, files: &[(&str, &str)]) -> Vec<String> {
    broken(&planted(kind, files), &[]).unwrap()
}

const ROW: Allowed = Allowed {
    package: "towline-app",
    import: "towline-wire",
    why: "for the test",
};

#[test]
fn a_declared_import_that_no_file_names_is_broken() {
    assert_eq!(
        complaints(
            None,
            &[(
                "src/lib.rs",
                "// towline_wire::Time\nfn f() { \"towline_wire\"; }"
            )]
        ),
        ["towline-app: it declares towline-wire, which no source file uses"]
    );
}

#[test]
fn a_path_a_use_or_a_macro_in_any_module_names_it() {
    for text in [
        "fn f(x: towline_wire::Time) {}",
        "use towline_wire as wire;",
        "pub use ::towline_wire::Time;",
        "fn f() { assert!(x == towline_wire::MAX); }",
        "#[cfg(feature = \"x\")]\nmod inner { use towline_wire::*; }",
    ] {
        assert_eq!(
            complaints(None, &[("src/lib.rs", text)]),
            Vec::<String>::new(),
            "{text}"
        );
    }
}

#[test]
fn an_import_that_only_tests_name_belongs_to_the_dev_dependencies() {
    let wrong = [
        "towline-app: it declares towline-wire, which only its tests use: move it to the dev-dependencies",
    ];
    let inside = [(
        "src/lib.rs",
        "#[cfg(test)]\nmod tests { use towline_wire::Time; }",
    )];
    assert_eq!(complaints(None, &inside), wrong);
    assert_eq!(complaints(Some("dev"), &inside), Vec::<String>::new());
    let beside = [
        ("src/lib.rs", ""),
        ("tests/all.rs", "use towline_wire::Time;"),
    ];
    assert_eq!(complaints(None, &beside), wrong);
    assert_eq!(complaints(Some("dev"), &beside), Vec::<String>::new());
}

#[test]
fn a_dev_dependency_that_no_test_names_is_broken() {
    assert_eq!(
        complaints(
            Some("dev"),
            &[("src/lib.rs", ""), ("tests/all.rs", "fn f() {}")]
        ),
        ["towline-app: it declares towline-wire, which no test uses"]
    );
}

#[test]
fn an_allowed_row_is_silent_until_nothing_needs_it() {
    let idle = planted(None, &[("src/lib.rs", "")]);
    assert_eq!(broken(&idle, &[ROW]).unwrap(), Vec::<String>::new());
    let used = planted(None, &[("src/lib.rs", "use towline_wire::Time;")]);
    assert_eq!(
        broken(&used, &[ROW]).unwrap(),
        [
            "towline-app is allowed to declare towline-wire in vain (for the test), and does not: delete the row in xtask/src/layers/unused.rs"
        ]
    );
}
