use std::path::Path;

use serde_json::json;

use super::{broken_imports, forbidden, module_of};

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
fn a_file_knows_its_module() {
    let connection = Path::new("src/connection");
    let module = |path| module_of(connection, &connection.join(path));
    assert_eq!(
        module("streams/mod.rs"),
        Some(segments("connection::streams"))
    );
    assert_eq!(
        module("streams/id.rs"),
        Some(segments("connection::streams::id"))
    );
    assert_eq!(module("acks.rs"), Some(segments("connection::acks")));
    assert_eq!(module("mod.rs"), None);
}
