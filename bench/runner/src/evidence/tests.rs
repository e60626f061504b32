use std::fs;

use bench_runner::figures::Sample;
use bench_runner::verdict::Scope;

use super::*;
use crate::marks::verdict;
use crate::plan::{self, Stack};
use crate::table;

#[test]
fn the_page_says_when_where_and_what_and_its_chart_is_beside_it() {
    let root = std::env::temp_dir().join(format!("bench-quic-page-{}", std::process::id()));
    let mut figures = Figures {
        cases: plan::cases(false, false),
        ..Figures::default()
    };
    let echo = figures
        .cases
        .iter()
        .find(|case| case.name == "echo")
        .cloned();
    let samples = vec![Sample::result("echo64_p50_us", 71.5)];
    figures.add(
        &echo.expect("a case"),
        Stack::Towline,
        "0.1.0".to_owned(),
        samples,
    );
    let verdict = verdict(&figures, Scope::Whole);
    let machine = Machine::describe(&root, [("seed", "none".to_owned())]);
    let tables = table::all(&figures, &verdict);
    let path = write(&root, &machine, &figures, &verdict, &tables).expect("a page");
    assert_eq!(
        path,
        format!("docs/evidence/{}-bench-quic.md", machine.date)
    );
    let page = fs::read_to_string(root.join(&path)).expect("the page's file");
    let chart =
        fs::read_to_string(root.join(path.replace(".md", ".svg"))).expect("the chart's file");
    fs::remove_dir_all(&root).expect("the folder goes");
    for wanted in [
        "- date: 20",
        "- seed: ",
        "- commit: ",
        "-bench-quic.svg)",
        "71.5",
        "NOT VALID",
    ] {
        assert!(page.contains(wanted), "{wanted} is missing in {page}");
    }
    assert!(chart.contains("echo64_p50_us"));
}
