//! The examples in `scenarios/`: each is read, and played for its first seconds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use towline_lab::scenario::{ScenarioText, Summary, run};

const SHORT: Duration = Duration::from_secs(3);

#[test]
fn every_example_is_read_and_moves_data() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let mut names: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder of examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    names.sort();
    assert!(names.len() >= 11, "{names:?}");
    for path in names {
        let name = path.display();
        let text = fs::read_to_string(&path).expect("an example");
        assert!(text.starts_with("# "), "{name} does not say what it shows");
        let trace =
            |trace: &str| fs::read_to_string(folder.join(trace)).map_err(|error| error.to_string());
        let mut read =
            ScenarioText::parse(&text, &trace).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(read.is_open(), "{name} leaves nothing to compare");
        let scenario = &mut read.scenario;
        scenario.duration = SHORT;
        scenario.flows.retain(|flow| flow.active.start < SHORT);
        let outcome = run(scenario).unwrap_or_else(|error| panic!("{name}: {error}"));
        let summary = Summary::new(scenario, &outcome, Duration::from_secs(1));
        for flow in &summary.flows {
            assert_eq!(flow.failure, None, "{name}: {}", flow.name);
            assert!(flow.goodput > 1000.0, "{name}: {flow:?}");
        }
    }
}

/// A peer delays the ACK of a single packet: that is no queue, and must not end slow start.
#[test]
fn a_background_transfer_alone_fills_a_long_path() {
    for (rate, rtt, count) in [
        ("50mbit", "200ms", 1),
        ("50mbit", "200ms", 5),
        ("2mbit", "600ms", 5),
    ] {
        let text = format!(
            "[scenario]\nduration = \"60s\"\nwarmup = \"20s\"\n\
             [path]\nrate = \"{rate}\"\nrtt = \"{rtt}\"\nqueue = \"800ms\"\n\
             [[flow]]\ncc = \"background\"\ncount = {count}\n"
        );
        let read =
            ScenarioText::parse(&text, &|_| Err("no traces here".to_owned())).expect("a scenario");
        let outcome = run(&read.scenario).expect("a run");
        let summary = Summary::new(&read.scenario, &outcome, Duration::from_secs(1));
        let used = summary.utilisation.expect("a bottleneck with a rate");
        assert!(used >= 0.8, "{count} flows, {rate}, {rtt}: {used:.3}");
    }
}
