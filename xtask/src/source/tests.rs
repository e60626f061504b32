use super::named_paths;

fn paths(text: &str) -> Vec<String> {
    let module = ["connection".to_owned(), "acks".to_owned()];
    named_paths(text, &module)
        .into_iter()
        .map(|path| path.segments.join("::"))
        .collect()
}

#[test]
fn use_trees_become_one_absolute_path_each() {
    let text =
        "use super::{component::Writer, streams::{self, id}, paths as p};\nuse crate::error::*;";
    assert_eq!(
        paths(text),
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
    assert_eq!(paths(text), ["connection::streams::Streams::new"]);
}

#[test]
fn inline_modules_shift_super_and_end_with_their_brace() {
    let text = "mod tests { use super::super::streams; fn f() { {} } }\nuse super::cids;";
    assert_eq!(paths(text), ["connection::streams", "connection::cids"]);
}

#[test]
fn comments_strings_and_lifetimes_name_nothing() {
    let text = "// use super::streams;\n/* super::cids /* nested */ */ fn f<'a>(x: &'a str) { \"super::paths::x\"; r#\"crate::a\"#; '\\''; '\"'; }\nuse super::events;";
    assert_eq!(paths(text), ["connection::events"]);
}

#[test]
fn lines_are_those_of_the_file() {
    let module = ["connection".to_owned(), "acks".to_owned()];
    let found = named_paths("\n\n// x\nuse super::cids;\n", &module);
    assert_eq!(found[0].line, 4);
}
