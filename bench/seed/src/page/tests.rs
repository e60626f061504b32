use super::{BEGIN, END, between};

#[test]
fn only_what_is_between_the_markers_changes() {
    let page = format!("by hand\n{BEGIN}\nold\n{END}\nby hand too\n");
    let once = between(&page, "new\n\n").expect("markers");
    assert_eq!(once, format!("by hand\n{BEGIN}\nnew\n{END}\nby hand too\n"));
    assert_eq!(between(&once, "new").as_ref(), Ok(&once));
}

#[test]
fn a_page_without_markers_is_left_alone() {
    for page in [String::new(), format!("{END}{BEGIN}")] {
        assert!(between(&page, "new").is_err(), "{page}");
    }
}

#[test]
fn the_page_of_this_repository_has_them() {
    let page = include_str!("../../../../docs/benchmarks.md");
    assert!(between(page, "new").is_ok());
}
