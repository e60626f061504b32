use super::broken;
use crate::tree::{Scope, Sources, Tree};

const ROOT: &str = "src/lib.rs";
const MOD: &str = "src/connection/mod.rs";
const INPUT: &str = "src/connection/input.rs";

fn planted(input: &str) -> Tree {
    let sources: Sources = [
        (ROOT, "mod connection;\nmod other;"),
        (
            MOD,
            "mod input;\npub struct Connection { x: u8 }\nimpl Connection {}",
        ),
        (INPUT, input),
        (
            "src/other.rs",
            "pub enum Connection { One }\nimpl Connection {}",
        ),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into();
    Tree::read(&sources, ROOT, Scope::Shipped).unwrap()
}

#[test]
fn an_impl_of_connection_in_a_file_that_is_not_listed_is_broken() {
    for text in [
        "use super::Connection;\nimpl Connection {}",
        "\nimpl crate::connection::Connection {}",
        "use super::Connection as C;\nimpl Drop for C { fn drop(&mut self) {} }",
    ] {
        assert_eq!(
            broken(&planted(text), &[(MOD, "all of it")]),
            [
                "src/connection/input.rs:2: an `impl` of Connection in a file that is not on the list of xtask/src/layers/connection.rs"
            ],
            "{text}"
        );
    }
}

#[test]
fn a_listed_file_may_hold_one_and_another_type_of_the_name_is_not_meant() {
    let tree = planted("use super::Connection;\nimpl Connection {}");
    assert_eq!(
        broken(&tree, &[(MOD, "all of it"), (INPUT, "the way in")]),
        Vec::<String>::new()
    );
}

#[test]
fn a_listed_file_without_one_must_go_from_the_list() {
    assert_eq!(
        broken(&planted(""), &[(MOD, "all of it"), (INPUT, "the way in")]),
        [
            "src/connection/input.rs has no `impl` of Connection any more (the way in): delete its row in xtask/src/layers/connection.rs"
        ]
    );
}

#[test]
fn a_crate_without_the_type_is_broken() {
    let sources: Sources = [(ROOT.to_owned(), String::new())].into();
    let tree = Tree::read(&sources, ROOT, Scope::Shipped).unwrap();
    assert_eq!(
        broken(&tree, &[]),
        ["src/lib.rs: there is not just one struct Connection"]
    );
}
