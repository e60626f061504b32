use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::baseline::{Baseline, Machine, Record, compare, key};
use super::{ROWS, Shares, executable, read_run, to_json, total};

const PROFILE: &str = "\
# callgrind format
version: 1
creator: callgrind-3.19.0
cmd:  counts ack
part: 1

positions: line
events: Ir
summary: 4564768

fl=(1) /src/main.rs
fn=(1) counts::measured_workload
45 512
totals: 4564768
";

const STABLE: &str = "\
rustc 1.95.0 (59807616e 2026-04-14)
binary: rustc
commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860
commit-date: 2026-04-14
host: x86_64-unknown-linux-gnu
release: 1.95.0
LLVM version: 22.1.2
";

fn record(rows: &[(&str, f64)]) -> Record {
    Record {
        machine: Machine {
            valgrind: "valgrind-3.19.0".to_owned(),
            cpu: "aes avx2".to_owned(),
        },
        instructions: rows.iter().map(|(n, i)| ((*n).to_owned(), *i)).collect(),
    }
}

#[test]
fn the_total_of_a_profile_is_the_sum_of_its_parts_and_only_of_instructions() {
    assert_eq!(total(PROFILE), Some(4_564_768));
    assert_eq!(total(&format!("{PROFILE}totals: 10\n")), Some(4_564_778));
    let two_events = PROFILE
        .replace("events: Ir", "events: Ir Dr")
        .replace("totals: 4564768", "totals: 7 4564768");
    assert_eq!(total(&two_events), Some(7));
    assert_eq!(total(&PROFILE.replace("Ir", "Dr")), None);
    assert_eq!(total(&PROFILE.replace("totals", "sum")), None);
    assert_eq!(total(&PROFILE.replace("4564768", "x")), None);
}

#[test]
fn a_run_that_counted_nothing_is_an_error() {
    let run = read_run("units 64\ncpu aes avx\n", PROFILE).expect("both are there");
    assert_eq!(
        (run.instructions, run.units, run.cpu.as_str()),
        (4_564_768, 64, "aes avx")
    );
    assert!(read_run("units 0\n", PROFILE).is_err());
    assert!(read_run("unit 5\n", PROFILE).is_err());
    let nothing = PROFILE.replace("totals: 4564768", "totals: 0");
    let error = read_run("units 64\n", &nothing).err().expect("no count");
    assert!(error.contains("measured_workload"), "{error}");
}

#[test]
fn stable_compilers_are_told_apart_by_version_and_host_and_nightlies_by_commit() {
    assert_eq!(
        key(STABLE).as_deref(),
        Ok("1.95.0 x86_64-unknown-linux-gnu")
    );
    let nightly = STABLE.replace("release: 1.95.0", "release: 1.97.0-nightly");
    let nightly = key(&nightly).expect("all fields are there");
    assert!(
        nightly.starts_with("1.97.0-nightly 59807616e1"),
        "{nightly}"
    );
    assert!(key("rustc 1.95.0\n").is_err());
}

#[test]
fn a_row_fails_only_beyond_the_tolerance_and_never_for_getting_cheaper() {
    let stored = record(&[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
    let now = record(&[("a", 102.0), ("b", 102.1), ("c", 50.0), ("d", 7.0)]);
    let verdicts = compare(&["d", "c", "b", "a"], &now, Some(&stored), 2.0);
    let seen: Vec<_> = verdicts
        .iter()
        .map(|v| (v.name.as_str(), v.baseline, v.too_dear))
        .collect();
    assert_eq!(
        seen,
        [
            ("d", None, false),
            ("c", Some(100.0), false),
            ("b", Some(100.0), true),
            ("a", Some(100.0), false),
        ]
    );
    assert_eq!(verdicts[1].change, Some(-50.0));
    // Of a short row 2 % is less than one instruction.
    let (short, longer) = (record(&[("a", 12.3)]), record(&[("a", 13.3)]));
    assert!(compare(&["a"], &longer, Some(&short), 2.0)[0].too_dear);
    let longer = record(&[("a", 13.2)]);
    assert!(!compare(&["a"], &longer, Some(&short), 2.0)[0].too_dear);
    let unknown = compare(&["a"], &now, None, 2.0);
    assert_eq!((unknown[0].change, unknown[0].too_dear), (None, false));
}

#[test]
fn the_file_reads_back_as_it_was_written_and_refuses_what_is_no_count() {
    let mut baseline = Baseline::default();
    baseline.set("1.95.0 x", record(&[("ack", 405.3), ("seal", 4361.4)]));
    baseline.set("1.96.0 x", record(&[("ack", 404.0)]));
    let text = baseline.text();
    assert_eq!(Baseline::parse(&text), Ok(baseline));
    assert!(Baseline::parse(&text.replace("405.3", "\"many\"")).is_err());
    assert!(Baseline::parse(&text.replace("405.3", "0")).is_err());
    assert!(Baseline::parse("[]").is_err());
}

#[test]
fn new_rows_are_added_and_old_ones_kept() {
    let mut baseline = Baseline::default();
    baseline.set("k", record(&[("ack", 400.0)]));
    baseline.add_missing("k", &record(&[("ack", 900.0), ("seal", 5.0)]));
    assert_eq!(
        baseline.of("k").map(|record| &record.instructions),
        Some(&BTreeMap::from([
            ("ack".to_owned(), 400.0),
            ("seal".to_owned(), 5.0)
        ]))
    );
}

#[test]
fn the_program_is_found_in_cargos_messages() {
    let messages = concat!(
        "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"bytes\"},\"executable\":null}\n",
        "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"counts\"},\"executable\":\"/t/counts\"}\n",
        "{\"reason\":\"build-finished\",\"success\":true}\n",
    );
    assert_eq!(executable(messages), Some(PathBuf::from("/t/counts")));
    assert_eq!(executable("nonsense\n"), None);
}

#[test]
fn json_has_every_row_once_and_says_which_is_too_dear() {
    let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    assert_eq!(BTreeSet::from_iter(&names).len(), names.len());
    let rows: Vec<(&str, f64)> = names.iter().map(|name| (*name, 10.0)).collect();
    let mut now = record(&rows);
    now.instructions.insert("seal".to_owned(), 11.0);
    let json = to_json("k", &compare(&names, &now, Some(&record(&rows)), 2.0));
    let listed = json["rows"].as_array().expect("a list");
    assert_eq!(listed.len(), ROWS.len());
    assert_eq!(json["ok"], false);
    for row in listed {
        let dear = row["workload"] == "seal";
        assert_eq!(row["ok"], !dear, "{row}");
        assert_eq!(row["change_percent"], if dear { 10.0 } else { 0.0 });
    }
}

#[test]
fn shares_are_of_all_that_a_packet_costs_its_sender() {
    let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    let now = record(&[
        ("write", 10.0),
        ("assemble", 1_000.0),
        ("seal", 3_590.0),
        ("ack", 400.0),
        ("open", 9_999.0),
        ("track", 500.0),
        ("rtt", 80.0),
    ]);
    let shares = Shares::of(&compare(&names, &now, None, 2.0)).expect("all rows are there");
    let said = shares.to_string();
    assert!(
        said.contains("5000") && said.contains("10.0 %") && said.contains("0.8 %"),
        "{said}"
    );
    assert_eq!(shares.missed(), None);
    let dearer = Shares { rtt: 1.1, ..shares };
    let missed = dearer.missed().expect("a mark is missed");
    assert!(missed.starts_with("rtt is 1.1 %"), "{missed}");
    assert_eq!(Shares::of(&[]), None);
}
