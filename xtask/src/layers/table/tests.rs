use serde_json::json;

use super::{BEGIN, END, rewritten};
use crate::tree::Sources;
use crate::workspace::Workspace;

fn workspace() -> Workspace {
    let needs = |name: &str, kind: Option<&str>| json!({ "name": name, "kind": kind });
    let metadata = json!({ "packages": [
        { "name": "towline-quic", "targets": [], "dependencies": [
            needs("towline-testkit", Some("dev")),
            needs("towline-recovery", None),
            needs("towline-wire", None),
            needs("towline-wire", Some("dev")),
            needs("bytes", None),
        ]},
        { "name": "towline-recovery", "targets": [], "dependencies": [] },
        { "name": "towline-testkit", "targets": [], "dependencies": [] },
        { "name": "towline-wire", "targets": [], "dependencies": [] },
        { "name": "xtask", "targets": [], "dependencies": [] },
    ]});
    Workspace::new(&metadata, Sources::new())
}

#[test]
fn the_table_says_what_the_manifests_declare_and_the_rest_of_the_page_stays() {
    let page = format!("before\n{BEGIN}\n\nanything\n{END}\nafter\n");
    let now = rewritten(&page, &workspace()).unwrap();
    assert_eq!(
        now,
        format!(
            "before\n{BEGIN}\n\n\
             | crate | imports | for its tests also |\n\
             |---|---|---|\n\
             | `wire` | – | – |\n\
             | `recovery` | – | – |\n\
             | `testkit` | – | – |\n\
             | `quic` | wire recovery | testkit |\n\
             \n{END}\nafter\n"
        )
    );
    assert_eq!(rewritten(&now, &workspace()).unwrap(), now);
}

#[test]
fn a_page_without_a_place_for_the_table_is_an_error() {
    assert!(rewritten("| crate | imports |", &workspace()).is_err());
}
