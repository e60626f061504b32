//! `towline sim` as a real program: tables, records, plots, and what it says of mistakes.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::fs;
use std::time::Duration;

use common::{Running, Scratch};
use rustix::process::Signal;
use serde_json::Value;

const TWO_FLOWS: &str = r#"
[scenario]
name = "two"
duration = "6s"
warmup = "1s"
[path]
rate = "10mbit"
rtt = "40ms"
queue = "1bdp"
[[flow]]
name = "open"
[[flow]]
name = "fixed"
cc = "newreno"
start = "1s"
[[flow]]
traffic = "ping"
"#;

fn scenario(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.path(name);
    fs::write(&path, text).expect("the scenario is written");
    path.display().to_string()
}

#[test]
fn a_run_prints_its_flows_and_draws_them() {
    let scratch = Scratch::new();
    let file = scenario(&scratch, "two.toml", TWO_FLOWS);
    let plots = scratch.path("plots").display().to_string();
    let ended = scratch.run(["sim", "run", &file, "--svg", &plots]);
    ended.expect(
        0,
        &[
            "two: ",
            "rate=10mbit",
            "open",
            "newreno",
            "ping",
            "bottleneck",
            "Jain",
        ],
    );
    let plot = fs::read_to_string(scratch.path("plots/two.svg")).expect("a plot");
    for wanted in [
        "</svg>",
        "congestion window",
        "round trip",
        "Jain",
        "open",
        "fixed",
    ] {
        assert!(plot.contains(wanted), "{wanted} is missing in the plot");
    }
}

#[test]
fn a_record_has_the_figures_and_the_series_on_request() {
    let scratch = Scratch::new();
    let file = scenario(&scratch, "two.toml", TWO_FLOWS);
    let run = |more: &[&str]| -> Value {
        let args = ["sim", "run", &file, "--json"];
        let ended = scratch.run(args.iter().chain(more));
        ended.expect(0, &[]).record("towline.sim/1")
    };
    let record = run(&[]);
    assert_eq!(record["scenario"], "two");
    assert_eq!(record["measured"], serde_json::json!([1.0, 6.0]));
    assert!(record["bottleneck"]["utilisation"].as_f64() > Some(0.9));
    assert_eq!(record["flows"][1]["cc"], "newreno");
    assert!(record["flows"][0]["goodput_bits_per_second"].as_f64() > Some(1e6));
    assert!(record["flows"][2]["rtt_p95"].as_f64() > Some(0.04));
    assert!(record.get("series").is_none());
    let again = run(&["--series"]);
    assert_eq!(again["flows"], record["flows"], "one seed is one outcome");
    let series = &again["series"]["flows"];
    let samples = series[0]["at"].as_array().expect("times").len();
    assert_eq!(samples, 61);
    assert_eq!(
        series[0]["cwnd"].as_array().expect("windows").len(),
        samples
    );
    let pings = series[2]["pings"].as_array().expect("pings").len();
    assert_eq!(pings, 61);
    assert_ne!(run(&["--seed", "2"])["flows"], record["flows"]);
}

#[test]
fn a_comparison_has_a_row_for_each_controller() {
    let scratch = Scratch::new();
    let file = scenario(&scratch, "two.toml", TWO_FLOWS);
    let plot = scratch.path("all.svg").display().to_string();
    let args = ["sim", "compare", "--cc", "cubic,ledbat++,background", &file];
    let ended = scratch.run(args.into_iter().chain(["--svg", &plot]));
    ended.expect(0, &["cubic", "ledbat++", "background", "queue mean"]);
    let plot = fs::read_to_string(plot).expect("a plot");
    assert!(plot.contains("background") && plot.contains("share of pings"));

    let record = scratch
        .run(args.into_iter().chain(["--json"]))
        .expect(0, &[])
        .record("towline.sim.compare/1");
    let rows = record["rows"].as_array().expect("rows");
    let ccs: Vec<&Value> = rows.iter().map(|row| &row["cc"]).collect();
    assert_eq!(ccs, ["cubic", "ledbat++", "background"]);
    for row in rows {
        assert_eq!(row["run"]["flows"][0]["cc"], row["cc"]);
        assert_eq!(row["run"]["flows"][1]["cc"], "newreno", "it is fixed");
    }
    // Who makes way leaves more to the other, and waits less.
    let share = |row: &Value| row["share"].as_f64().expect("a share");
    assert!(share(&rows[0]) > share(&rows[1]), "{rows:?}");
}

#[test]
fn flags_describe_a_path_where_there_is_no_file() {
    let scratch = Scratch::new();
    let args = [
        "sim", "compare", "--cc", "cubic", "--rate", "5mbit", "--rtt", "20ms",
    ];
    let more = ["--queue", "2bdp", "--flows", "2", "--duration", "3s"];
    let ended = scratch.run(args.into_iter().chain(more));
    ended.expect(
        0,
        &["rate=5mbit", "delay=10ms", "queue=25000", "0.0 to 3.0 s"],
    );
    let lte = [
        "sim",
        "compare",
        "--cc",
        "cubic",
        "--profile",
        "lte",
        "--duration",
        "2s",
    ];
    scratch
        .run(lte)
        .expect(0, &["lte: ", "rate=20mbit", "loss=0.005"]);
    for (flag, value, word) in [
        ("--rate", "fast", "--rate \"fast\""),
        ("--queue", "0.001bdp", "possible are"),
        ("--profile", "moon", "satellite"),
        ("--flows", "0", "--flows 0"),
        ("--duration", "2h", "--duration"),
        ("--rtt", "\"", "--rtt"),
    ] {
        let args = ["sim", "compare", "--cc", "cubic", flag, value];
        scratch.run(args).expect(2, &[word, "next:"]);
    }
}

#[test]
fn a_connection_that_breaks_is_named_and_ends_the_command_with_a_failure() {
    let scratch = Scratch::new();
    let dark = TWO_FLOWS
        .replace("duration = \"6s\"", "duration = \"20s\"")
        .replace(
            "queue = \"1bdp\"",
            "queue = \"1bdp\"\nblackout = \"0s+20s\"",
        );
    let dark = scenario(&scratch, "dark.toml", &dark);
    let good = scenario(&scratch, "good.toml", &TWO_FLOWS.replace("two", "good"));
    scratch.run(["sim", "run", &dark, &good]).expect(
        1,
        &[
            "good: ",
            "two: flow open ended: ",
            "two: flow fixed ended: ",
        ],
    );
    let ended = scratch.run(["sim", "run", &dark, "--json"]).expect(1, &[]);
    let flows = &ended.record("towline.sim/1")["flows"];
    assert!(flows[0]["failure"].is_string(), "{flows}");
    scratch
        .run(["sim", "compare", "--cc", "cubic,bbr", &dark])
        .expect(1, &["cubic: flow open ended: ", "bbr: flow open ended: "]);
}

#[test]
fn mistakes_name_the_file_the_line_and_what_to_do() {
    let scratch = Scratch::new();
    let broken = TWO_FLOWS.replace("10mbit", "10mbits");
    let broken = scenario(&scratch, "broken.toml", &broken);
    let place = format!("{broken}:7:1: `path.rate = \"10mbits\"`");
    scratch
        .run(["sim", "run", &broken])
        .expect(2, &[&place, "100mbit", "docs/scenarios.md"]);
    let traced = TWO_FLOWS.replace("[path]", "[forward]\ntrace = \"none.txt\"\n[path]");
    let traced = scenario(&scratch, "traced.toml", &traced);
    scratch
        .run(["sim", "run", &traced])
        .expect(2, &["traced.toml:7:1", "none.txt", "No such file"]);
    scratch
        .run(["sim", "run", "/nowhere/at/all.toml"])
        .expect(1, &["/nowhere/at/all.toml"]);
    let fixed = TWO_FLOWS.replace("name = \"open\"", "name = \"open\"\ncc = \"cubic\"");
    let fixed = scenario(&scratch, "fixed.toml", &fixed);
    scratch
        .run(["sim", "compare", "--cc", "cubic", &fixed])
        .expect(2, &["every flow has a controller", "take `cc` away"]);
    let good = scenario(&scratch, "two.toml", TWO_FLOWS);
    scratch
        .run(["sim", "compare", "--cc", "cubic,magic", &good])
        .expect(2, &["magic", "newreno", "background"]);
    scratch
        .run(["sim", "run", &good, &good, "--svg", "one.svg"])
        .expect(2, &["one file for 2 scenarios", "folder"]);
    scratch
        .run(["sim", "run", &good, "--svg", "/proc/nowhere/x.svg"])
        .expect(1, &["/proc/nowhere/x.svg", "--svg"]);
}

#[test]
fn ctrl_c_ends_a_long_run_and_shows_what_was_seen() {
    let scratch = Scratch::new();
    let long = TWO_FLOWS
        .replace("6s", "3600s")
        .replace("10mbit", "1gbit")
        .replace("warmup", "sample = \"1s\"\nwarmup");
    let file = scenario(&scratch, "long.toml", &long);
    let running = Running::start(scratch.towline(["sim", "run", &file]));
    std::thread::sleep(Duration::from_secs(2));
    running.signal(Signal::INT);
    running.wait().expect(130, &["two: ", "bottleneck"]);
}

#[test]
fn ctrl_c_ends_the_matrix_and_leaves_no_empty_table() {
    let scratch = Scratch::new();
    let out = scratch.path("matrix.md");
    let args = ["sim", "matrix", "--row", "utilisation", "--out"];
    let running =
        Running::start(scratch.towline(args.into_iter().chain([out.to_str().expect("a path")])));
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::INT);
    let ended = running.wait().expect(130, &["interrupted after", "runs"]);
    assert!(ended.took < Duration::from_secs(10), "{ended:?}");
    assert!(!out.exists());
    scratch
        .run(["sim", "matrix", "--out", "/proc/nowhere/x.md"])
        .expect(1, &["cannot write /proc/nowhere/x.md"]);
}
