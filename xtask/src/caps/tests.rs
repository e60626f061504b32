use super::{constants, has_test, rows, wrong_rows};

const SOURCE: &str = "\
/// Ranges of packet numbers kept for acknowledgements. Cap: newest first.
pub(crate) const MAX_ACK_RANGES: usize = 64;

/// Not a cap.
pub const MAX_VARINT: u64 = (1 << 62) - 1;

#[test]
fn ack_ranges_are_capped() {}

fn helper() {}
";

fn complaints(page: &str) -> Vec<String> {
    let sources = [("crates/x/src/lib.rs".to_owned(), SOURCE.to_owned())];
    let (rows, mut wrong) = rows(page);
    wrong.extend(wrong_rows(&rows, &sources));
    wrong
}

fn page(row: &str) -> String {
    format!("# Caps\n\n| cap | value | where | test |\n|---|---|---|---|\n{row}\n")
}

#[test]
fn a_true_row_is_accepted() {
    let row = "| `MAX_ACK_RANGES` | `64` | `crates/x/src/lib.rs` | `ack_ranges_are_capped` |";
    assert!(complaints(&page(row)).is_empty());
}

#[test]
fn a_row_without_a_test_is_refused() {
    let row = "| `MAX_ACK_RANGES` | `64` | `crates/x/src/lib.rs` |  |";
    assert_eq!(
        complaints(&page(row))[0],
        "docs/caps.md:5: a row needs cap, value, where and test"
    );
}

#[test]
fn a_test_that_does_not_exist_or_is_no_test_is_refused() {
    for test in ["nowhere", "helper"] {
        let row = format!("| `MAX_ACK_RANGES` | `64` | `crates/x/src/lib.rs` | `{test}` |");
        assert!(complaints(&page(&row))[0].ends_with(&format!("no test named {test}")));
    }
}

#[test]
fn a_value_that_differs_is_refused() {
    let row = "| `MAX_ACK_RANGES` | `32` | `crates/x/src/lib.rs` | `ack_ranges_are_capped` |";
    assert!(complaints(&page(row))[0].contains("the page says 32"));
}

#[test]
fn a_constant_or_file_that_is_not_there_is_refused() {
    let row = "| `MAX_GONE` | `1` | `crates/x/src/lib.rs` | `ack_ranges_are_capped` |";
    assert!(complaints(&page(row))[0].contains("no such constant"));
    let row = "| `MAX_GONE` | `1` | `crates/y/src/lib.rs` | `ack_ranges_are_capped` |";
    assert!(complaints(&page(row))[0].contains("no file crates/y/src/lib.rs"));
}

#[test]
fn a_marked_constant_without_a_row_is_refused() {
    assert_eq!(
        complaints("no table here"),
        ["crates/x/src/lib.rs: MAX_ACK_RANGES is marked `Cap:` and has no row in docs/caps.md"]
    );
}

#[test]
fn values_may_span_lines() {
    let found = constants("const MAX_LONG: Duration =\n    Duration::from_secs(10);\n");
    assert_eq!(found[0].value, "Duration::from_secs(10)");
}

#[test]
fn tests_of_other_runtimes_count() {
    assert!(has_test("#[tokio::test]\nasync fn works() {}", "works"));
    assert!(!has_test("async fn works() {}", "works"));
}
