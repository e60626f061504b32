use super::comments::{Citation, citations};
use super::{Sources, catalogue, collect, holes, page};

const CODE: &str = "\
/// Pads (RFC 9000 §14.1,
/// §8.1).
fn pad_datagram() {}

#[test]
fn datagrams_are_padded() {}

fn helper() {}
";

/// One section of one MUST, met as `details` say.
fn catalogue_of(details: &str) -> String {
    format!(
        "# A remark.\n§8.1 Validation | -\n§14.1 Size | 1\n\n1 Datagrams are padded.\n{details}"
    )
}

fn complaints_about(text: &str, code: &str) -> Vec<String> {
    let (rfc, mut wrong) = catalogue::parse(9000, "rfc9000.txt", text);
    let sources = Sources::from([("crates/x/src/lib.rs".to_owned(), code.to_owned())]);
    let rfcs = [rfc];
    let (cited, unreadable) = collect(&rfcs, &sources);
    wrong.extend(unreadable);
    wrong.extend(holes(&rfcs[0], &sources, &cited));
    wrong
}

fn complaints(details: &str) -> Vec<String> {
    complaints_about(&catalogue_of(details), CODE)
}

const CODE_LINE: &str = "  code x/src/lib.rs::pad_datagram\n";
const TEST_LINE: &str = "  test x/src/lib.rs::datagrams_are_padded\n";

#[test]
fn a_requirement_with_code_and_test_is_met() {
    assert!(complaints(&format!("{CODE_LINE}{TEST_LINE}")).is_empty());
}

#[test]
fn a_requirement_needs_code_and_test_or_a_reason_or_an_issue() {
    assert!(complaints("")[0].ends_with("no code, no reason and no issue"));
    assert!(complaints(CODE_LINE)[0].ends_with("code without a test that shows it"));
    for fine in [
        "  so It is.\n",
        "  none Not ours.\n",
        "  open 17: Not built.\n",
    ] {
        assert!(complaints(fine).is_empty(), "{fine}");
    }
}

#[test]
fn a_must_cannot_be_declined_and_a_should_can() {
    assert!(complaints("  declined No.\n")[0].ends_with("a MUST cannot be declined"));
    let should = format!("{CODE_LINE}{TEST_LINE}\ns1 It is random.\n  declined No.\n");
    assert!(complaints(&should).is_empty());
}

#[test]
fn what_is_named_must_exist() {
    let gone = format!("  code x/src/lib.rs::pad\n{TEST_LINE}");
    assert!(complaints(&gone)[0].ends_with("no pad in crates/x/src/lib.rs"));
    let gone = format!("  code x/src/gone.rs::pad\n{CODE_LINE}{TEST_LINE}");
    assert!(complaints(&gone)[0].ends_with("no file crates/x/src/gone.rs"));
    for test in ["nowhere", "helper"] {
        let gone = format!("{CODE_LINE}  test x/src/lib.rs::{test}\n");
        assert!(complaints(&gone)[0].ends_with(&format!("no test {test} in crates/x/src/lib.rs")));
    }
}

#[test]
fn every_must_has_one_entry() {
    let text = "§14.1 Size | 3\n\n1 A.\n  so A.\n\n1-2 B.\n  so B.\n\n4 C.\n  so C.\n";
    let wrong = complaints_about(text, "");
    let what: Vec<&str> = wrong
        .iter()
        .map(|w| w.rsplit(": ").next().unwrap())
        .collect();
    assert_eq!(
        what,
        [
            "(4) is not one of its 3 MUSTs",
            "(1) has 2 entries",
            "(3) has 0 entries"
        ]
    );
}

#[test]
fn a_section_that_is_met_is_cited_where_it_is_met() {
    let uncited = CODE.replace("§14.1", "§8.1");
    let text = catalogue_of(&format!("{CODE_LINE}{TEST_LINE}"));
    assert!(complaints_about(&text, &uncited)[0].ends_with("cites RFC 9000 §14.1"));
}

#[test]
fn a_comment_that_cites_no_section_of_the_rfc_is_refused() {
    let text = catalogue_of(&format!("{CODE_LINE}{TEST_LINE}"));
    let code = format!("{CODE}// RFC 9000 §14.9 says so.\n");
    assert_eq!(
        complaints_about(&text, &code),
        ["crates/x/src/lib.rs:9: RFC 9000 has no §14.9"]
    );
    for spelling in ["RFC 9000 section 14.1", "RFC 9000 14.1"] {
        let code = format!("{CODE}// {spelling} says so.\n");
        assert!(complaints_about(&text, &code)[0].ends_with("as in `RFC 9000 §5.1`"));
    }
}

#[test]
fn citations_are_found_however_a_comment_is_broken() {
    let text = "\
let a = 1; // RFC 9000 §5.1.
/// As RFC 9001
/// §6.1 and §6.2 say, and RFC 9002's constant (§7); RFC 9000 §19.4–§19.13.
/// draft-ietf-quic-ack-frequency-14 §4, RFC 9438 §5, (RFC 9000 §A.2); RFC 9002 A.8.
let b = \"RFC 9000 §1\";
";
    let cited = |line, rfc, section: &str| Citation {
        line,
        rfc,
        section: Some(section.to_owned()),
    };
    assert_eq!(
        citations(text),
        [
            cited(1, 9000, "5.1"),
            cited(2, 9001, "6.1"),
            cited(2, 9001, "6.2"),
            cited(2, 9002, "7"),
            cited(2, 9000, "19.4"),
            cited(2, 9000, "19.13"),
            cited(2, 9438, "5"),
            cited(2, 9000, "A.2"),
            cited(2, 9002, "A.8"),
        ]
    );
}

#[test]
fn unreadable_lines_are_named() {
    for (text, what) in [
        ("1 A.\n", "a requirement before the first section"),
        (
            "§1 A | 0\n  so A.\n",
            "a line that belongs to no requirement",
        ),
        ("§1 A\n", "a section is written"),
        ("§1 A | 1\n\nx A.\n", "a requirement is written"),
        ("§1 A | 1\n\n1 A.\n  maybe B.\n", "not one of"),
        ("§1 A | 1\n\n1 A.\n  open 17\n", "what is open is written"),
        ("§1 A | 1\n\n1 A.\n  code x.rs\n", "a place is written"),
        ("§1 A | 0\n§1 A | 0\n", "a section again"),
        (
            "§1 A | -\n\n1 A.\n  so A.\n",
            "requirements of a section out of scope",
        ),
    ] {
        let wrong = complaints_about(text, "");
        assert!(wrong.iter().any(|w| w.contains(what)), "{text}: {wrong:?}");
    }
}

#[test]
fn the_page_lists_what_is_open_under_its_issue() {
    let text = catalogue_of("  open 17: Not built.\n");
    let (rfc, _) = catalogue::parse(9000, "rfc9000.txt", &text);
    let rfcs = [rfc];
    let (cited, _) = collect(&rfcs, &Sources::new());
    let page = page::page(&rfcs, &cited);
    assert!(
        page.contains("### Issue 17\n\n- RFC 9000 §14.1 (1): Datagrams are padded. *Not built.*")
    );
    assert!(page::summary(&rfcs).contains("RFC 9000 §14: 1 of 1 catalogued; 0 shown by tests"));
}
