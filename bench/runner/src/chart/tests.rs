use bench_runner::figures::Sample;

use super::*;
use crate::plan;

#[test]
fn the_chart_has_a_panel_for_each_measure_and_a_bar_for_each_stack_that_was_measured() {
    let mut figures = Figures {
        cases: plan::cases(false, false),
        ..Figures::default()
    };
    let bulk = figures.cases[0].clone();
    for (stack, value) in [(Stack::Towline, 0.4567), (Stack::Quinn, 1.05)] {
        let samples = vec![Sample::result("bulk_s_per_gb", value)];
        figures.add(&bulk, stack, "1".to_owned(), samples);
    }
    let path = std::env::temp_dir().join(format!("bench-quic-chart-{}.svg", std::process::id()));
    draw(&path, &figures).expect("a chart");
    let text = std::fs::read_to_string(&path).expect("the chart's file");
    std::fs::remove_file(&path).expect("the chart's file goes");
    for wanted in [
        "bulk_s_per_gb, s/GB",
        "many_us_per_packet, us",
        "towline",
        "quinn",
        "0.457",
        "1.05",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing");
    }
    assert!(!text.contains("quic-go"), "a bar of what was not measured");
    // A white ground, and a bar for each of the two.
    assert_eq!(text.matches("<rect").count(), 3);
}
