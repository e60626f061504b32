use serde_json::json;

use super::connection::FILES;
use super::{UPPER_FLOORS, broken_components, broken_imports, forbidden, idle_rows};
use crate::tree::{Scope, Sources, Tree};
use crate::workspace::Workspace;

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::to_owned).collect()
}

#[test]
fn an_import_upwards_is_broken_and_a_listed_one_is_not() {
    let metadata = json!({ "packages": [
        { "name": "towline-wire", "dependencies": [{ "name": "towline-quic", "kind": null }] },
        { "name": "towline-quic", "dependencies": [{ "name": "towline-wire", "kind": null }] },
    ]});
    let broken = broken_imports(&metadata);
    assert_eq!(
        broken,
        ["towline-wire: it imports towline-quic, which its row does not allow"]
    );
}

#[test]
fn a_test_import_is_allowed_for_tests_only() {
    let metadata = |kind| {
        json!({ "packages": [
            { "name": "towline-quic", "dependencies": [{ "name": "towline-sim", "kind": kind }] },
            { "name": "towline-sim", "dependencies": [] },
        ]})
    };
    assert!(broken_imports(&metadata(Some("dev"))).is_empty());
    assert_eq!(broken_imports(&metadata(None)).len(), 1);
}

#[test]
fn a_crate_without_a_row_is_broken() {
    let metadata = json!({ "packages": [{ "name": "towline-new", "dependencies": [] }] });
    assert_eq!(broken_imports(&metadata).len(), 1);
}

#[test]
fn a_socket_in_a_sans_io_crate_is_broken() {
    let metadata = json!({ "packages": [{ "name": "towline-sim", "dependencies": [{ "name": "tokio", "kind": null }] }] });
    assert_eq!(
        broken_imports(&metadata),
        ["towline-sim is sans-I/O and imports tokio"]
    );
}

#[test]
fn a_component_may_name_itself_and_the_floor_below_only() {
    for fine in [
        "connection::streams::id::StreamId",
        "connection::component::Writer",
        "error::Violation",
    ] {
        assert_eq!(forbidden("streams", &segments(fine)), None, "{fine}");
    }
    for wrong in [
        "connection::acks::Acks",
        "connection::output",
        "connection",
        "connection::*",
        "Connection",
        "endpoint::Endpoint",
    ] {
        assert!(forbidden("streams", &segments(wrong)).is_some(), "{wrong}");
    }
}

#[test]
fn a_component_that_names_another_is_found_in_any_of_its_files_and_in_tests() {
    let sources: Sources = [
        ("src/lib.rs", "mod connection;"),
        (
            "src/connection/mod.rs",
            "mod acks;\nmod input;\nmod streams;\nuse acks::Acks;",
        ),
        (
            "src/connection/acks.rs",
            "mod ranges;\nuse self::ranges::Ranges;",
        ),
        (
            "src/connection/acks/ranges.rs",
            "\nfn f() { super::super::streams::g() }",
        ),
        (
            "src/connection/streams/mod.rs",
            "mod id;\n#[cfg(test)]\nmod tests { use super::super::acks; }",
        ),
        (
            "src/connection/streams/id.rs",
            "use super::super::component::Writer;",
        ),
        ("src/connection/input.rs", "use super::streams::Streams;"),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into();
    let tree = Tree::read(&sources, "src/lib.rs", Scope::WithTests).unwrap();
    assert_eq!(
        broken_components(&tree),
        (
            4,
            vec![
                "src/connection/acks/ranges.rs:2: connection::streams::g (acks must not name streams: pass a value instead)".to_owned(),
                "src/connection/streams/mod.rs:3: connection::acks (streams must not name acks: pass a value instead)".to_owned(),
            ]
        )
    );
}

#[test]
fn a_component_that_another_name_leads_to_is_found() {
    let sources: Sources = [
        ("src/lib.rs", "mod connection;\nmod shown;\npub use connection::streams::Chunk;"),
        ("src/shown.rs", "pub(crate) use crate::connection::streams::*;"),
        (
            "src/connection/mod.rs",
            "mod acks;\npub mod parts;\npub mod streams;\npub use parts::Connection;",
        ),
        (
            "src/connection/acks.rs",
            "use crate::Chunk;\nuse crate::shown::Piece as Part;\nuse crate::connection::Connection;\nuse crate::shown;",
        ),
        ("src/connection/streams.rs", "pub struct Chunk;\npub struct Piece;"),
        ("src/connection/parts.rs", "pub struct Connection;"),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into();
    let tree = Tree::read(&sources, "src/lib.rs", Scope::WithTests).unwrap();
    let (_, broken) = broken_components(&tree);
    let lines: Vec<&str> = broken
        .iter()
        .map(|rule| rule.split_once(": ").unwrap().0)
        .collect();
    assert_eq!(
        lines,
        [1, 2, 3].map(|line| format!("src/connection/acks.rs:{line}")),
        "{broken:#?}"
    );
}

#[test]
fn every_file_that_holds_the_connection_is_an_upper_floor() {
    for (path, _) in FILES {
        let name = path.rsplit_once('/').unwrap().1.trim_end_matches(".rs");
        assert!(
            name == "mod" || UPPER_FLOORS.contains(&name),
            "{path} holds the Connection, and components may name it"
        );
    }
}

#[test]
fn a_row_that_allows_what_its_crate_does_not_declare_must_shrink() {
    let rows = |imports: &[&str]| {
        let imports: Vec<_> = imports
            .iter()
            .map(|name| json!({ "name": name, "kind": null }))
            .collect();
        let metadata = json!({ "packages": [
            { "name": "towline-stcp", "dependencies": imports },
            { "name": "towline-wire" },
            { "name": "towline-identity" },
        ]});
        let mut complaints = idle_rows(&Workspace::new(&metadata, Sources::new()));
        assert!(complaints.contains(
            &"towline-quic has a row in xtask/src/layers/rooms.rs and is no crate of the workspace"
                .to_owned()
        ));
        complaints.retain(|complaint| complaint.starts_with("towline-stcp"));
        complaints
    };
    let tests = "towline-stcp: its row in xtask/src/layers/rooms.rs allows towline-testkit, which it does not declare";
    assert_eq!(rows(&["towline-wire", "towline-identity"]), [tests]);
    assert_eq!(
        rows(&["towline-identity"]),
        [
            "towline-stcp: its row in xtask/src/layers/rooms.rs allows towline-wire, which it does not declare",
            tests
        ]
    );
}
