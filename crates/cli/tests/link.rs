//! `towline link measure` as a real program: rows, records, and what it says of files that are none.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::fs;
use std::io::Write;

use common::{Running, Scratch};
use rustix::process::Signal;
use serde_json::Value;

fn deltas(scratch: &Scratch, name: &str, count: usize) -> String {
    let line = |at: usize| {
        format!(
            "{{\"context\":\"vessels.self\",\"updates\":[{{\"values\":[{{\"path\":\"environment.depth.belowKeel\",\"value\":{}.{}}}]}}]}}\n",
            10 + at % 3,
            at % 10
        )
    };
    let text: String = (0..count).map(line).collect();
    write(scratch, name, &text)
}

fn write(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.path(name);
    fs::write(&path, text).expect("the file is written");
    path.display().to_string()
}

#[test]
fn a_file_of_deltas_is_measured_cold_and_warm() {
    let scratch = Scratch::new();
    let file = deltas(&scratch, "deltas.jsonl", 1_200);
    let ended = scratch.run(["link", "measure", &file, "--batch", "10,50"]);
    ended.expect(0, &["bytes a delta", "1200 deltas came back exactly"]);
    let ended = scratch.run(["link", "measure", &file, "--batch", "10,50", "--json"]);
    let ended = ended.expect(0, &[]);
    let record: Value = serde_json::from_str(ended.stdout.trim()).expect("one record");
    assert_eq!(record["round_trip"], "exact");
    assert_eq!(record["refused"], 0);
    let rows = record["rows"].as_array().expect("rows");
    let modes: Vec<(u64, &str)> = rows
        .iter()
        .map(|row| {
            (
                row["batch"].as_u64().unwrap(),
                row["mode"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        modes,
        [(10, "warm"), (50, "warm"), (10, "cold"), (50, "cold")]
    );
    for row in rows {
        let bytes = row["bytes_per_delta"].as_f64().unwrap();
        assert!((0.3..20.0).contains(&bytes), "{row}");
    }
}

#[test]
fn training_is_paid_for_in_the_cold_row() {
    let scratch = Scratch::new();
    let file = deltas(&scratch, "deltas.jsonl", 200);
    let cold = |more: &[&str]| {
        let ended =
            scratch.run([&["link", "measure", &file, "--batch", "10", "--json"], more].concat());
        let ended = ended.expect(0, &[]);
        let record: Value = serde_json::from_str(ended.stdout.trim()).expect("one record");
        record["rows"][0]["bytes_per_delta"].as_f64().unwrap()
    };
    assert!(cold(&["--train", &file]) > 1.3 * cold(&[]));
}

#[test]
fn lines_that_are_no_deltas_are_told_and_left_out() {
    let scratch = Scratch::new();
    let text = "{\"a\":1}\n\n{\"a\":NaN}\n[1]\n{\"a\":1,\"a\":2}\n{\"a\":2}";
    let file = write(&scratch, "mixed.jsonl", text);
    let ended = scratch.run(["link", "measure", &file, "--batch", "1"]);
    let ended = ended.expect(7, &["2 deltas came back exactly"]);
    for said in [
        ":3: column",
        ":4: a JSON object is wanted",
        ":5: the key \"a\" is there twice",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
}

#[test]
fn a_file_that_is_none_is_wrong_usage() {
    let scratch = Scratch::new();
    let empty = write(&scratch, "empty.jsonl", "\n\n");
    let ended = scratch.run(["link", "measure", &empty]);
    let ended = ended.expect(2, &[]);
    assert!(
        ended.stderr.contains("has no delta in it"),
        "{}",
        ended.stderr
    );
    let ended = scratch.run(["link", "measure", "/nowhere/at/all.jsonl"]);
    let ended = ended.expect(2, &[]);
    assert!(ended.stderr.contains("cannot read"), "{}", ended.stderr);
    let ended = scratch.run(["link", "measure", &empty, "--loss", "0.9"]);
    ended.expect(2, &["from 0 to 0.5"]);
}

/// Deltas of which no two are alike.
fn lines(count: usize) -> Vec<String> {
    let line = |at: usize| {
        format!(
            "{{\"context\":\"vessels.self\",\"updates\":[{{\"$source\":\"a.b\",\"values\":[{{\"path\":\"p.{}\",\"value\":{at}}}]}}]}}",
            at % 7
        )
    };
    (0..count).map(line).collect()
}

#[test]
fn what_is_published_is_printed_at_the_other_end() {
    let scratch = Scratch::new();
    let server = scratch.listen(["link", "sub", "--listen", "127.0.0.1:0"]);
    let sent = lines(300);
    let text = format!("{}\n{{\"a\":NaN}}\n", sent.join("\n"));
    let file = write(&scratch, "deltas.jsonl", &text);
    let ended = scratch.run(["link", "pub", &server.url, &file, "--json"]);
    let record = ended
        .expect(0, &["line 301: column 6"])
        .record("towline.link.pub/1");
    assert_eq!(
        (&record["durable"], &record["refused"]),
        (&300.into(), &1.into())
    );
    assert!(
        record["bytes_per_record"].as_f64().unwrap() < 60.0,
        "{record}"
    );
    server.signal(Signal::INT);
    let said = server.wait();
    let mut got: Vec<&str> = said
        .stdout
        .lines()
        .filter(|line| line.contains("updates"))
        .collect();
    got.sort_unstable();
    let mut sent: Vec<&str> = sent.iter().map(String::as_str).collect();
    sent.sort_unstable();
    assert_eq!(got, sent);
}

#[test]
fn who_is_not_let_in_is_told_so() {
    let scratch = Scratch::new();
    let other = Scratch::new();
    let key = other.run(["link", "keygen"]).expect(0, &["sha256/"]).stdout;
    let address = "127.0.0.1:0";
    let server = scratch.listen(["link", "sub", "--listen", address, "--from", key.trim()]);
    let file = write(&scratch, "deltas.jsonl", &lines(1)[0]);
    let (url, _) = server.url.split_once('#').unwrap();
    scratch
        .run(["link", "pub", url, &file])
        .expect(2, &["has no key", "keygen"]);
    let publish = |patience| ["link", "pub", &server.url, &file, "--patience", patience];
    scratch.run(publish("4s")).expect(
        3,
        &["1 of 1 record are not durable", "does not let this key in"],
    );
    other.run(publish("60s")).expect(0, &["1 record, "]);
}

/// A boat and a shore by their configurations, whose records go into a file.
struct Pair {
    scratch: Scratch,
    boat: String,
    shore: String,
    log: std::path::PathBuf,
}

impl Pair {
    fn new(sources: &str) -> Self {
        let scratch = Scratch::new();
        let key = scratch.run(["link", "keygen"]).expect(0, &[]).stdout;
        let (key, address) = (key.trim().to_owned(), scratch.address());
        let log = scratch.path("log.jsonl");
        let shore = format!(
            "name = \"shore\"\ncontrol = \"{}\"\n[listen]\naddress = \"{address}\"\n[[client]]\nname = \"vela\"\nkey = \"{key}\"\n[[sink]]\nkind = \"file\"\npath = \"{}\"\nids = true\n",
            scratch.path("shore.sock").display(),
            log.display()
        );
        let boat = format!(
            "name = \"vela\"\ncontrol = \"{}\"\n[peer]\nurl = \"towline://{address}\"\nkey = \"{key}\"\n[spool]\npath = \"{}\"\nmax = \"64 MiB\"\n[live]\ndeadline = \"50 ms\"\n{sources}",
            scratch.path("boat.sock").display(),
            scratch.path("spool").display()
        );
        Self {
            boat: write(&scratch, "boat.toml", &boat),
            shore: write(&scratch, "shore.toml", &shore),
            scratch,
            log,
        }
    }

    fn run(&self, file: &str) -> Running {
        Running::start(self.scratch.towline(["link", "run", file]))
    }

    /// The numbers of the records in the log, in order, each once.
    fn logged(&self) -> Vec<u64> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        // A line that is being written has no end yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut values: Vec<u64> = whole
            .lines()
            .map(|line| {
                let line: Value = serde_json::from_str(line).expect("a line of JSON");
                let values = &line["record"]["updates"][0]["values"];
                values[0]["value"].as_u64().expect("a number")
            })
            .collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}

#[test]
fn a_boat_and_a_shore_that_are_killed_lose_nothing_that_was_accepted() {
    let pair = Pair::new("[[source]]\nkind = \"stdin\"\n");
    let mut shore = pair.run(&pair.shore);
    let mut at = 0;
    let all = lines(1_500);
    for round in 0..3 {
        let mut command = pair.scratch.towline(["link", "run", &pair.boat]);
        command.stdin(std::process::Stdio::piped());
        let mut boat = command.spawn().expect("it starts");
        let mut stdin = boat.stdin.take().expect("a pipe");
        for line in &all[at..at + 500] {
            writeln!(stdin, "{line}").expect("it reads");
        }
        at += 500;
        drop(stdin);
        if round < 2 {
            // What it has read is in its spool by then, and seldom all of it on the shore.
            let last = at as u64 - 1;
            common::wait_until("the last record is taken", || {
                is_spooled(&pair.scratch.path("spool"), last) || pair.logged().contains(&last)
            });
            boat.kill().expect("it runs");
            boat.wait().expect("it ends");
            shore.kill();
            shore = pair.run(&pair.shore);
        } else {
            assert_eq!(boat.wait().expect("it ends").code(), Some(0));
        }
    }
    common::wait_until("the log has them all", || pair.logged().len() == 1_500);
    let control = pair.scratch.path("shore.sock").display().to_string();
    let show = pair.scratch.run(["link", "show", "--control", &control]);
    show.expect(0, &["vela: ", "sink file: ok"]);
    shore.kill();
}

#[test]
fn what_was_chosen_to_be_left_out_is_left_out_and_a_boat_with_a_file_ends() {
    let scratch = Scratch::new();
    let delta = |number: usize| {
        format!(
            r#"{{"updates":[{{"$source":"s","values":[{{"path":"a","value":{number}.125}},{{"path":"b","value":1}}]}}]}}"#
        )
    };
    let text: Vec<String> = (0..20).map(delta).collect();
    let file = write(&scratch, "deltas.jsonl", &text.join("\n"));
    let chosen = format!(
        "[[source]]\nkind = \"file\"\npath = \"{file}\"\n[[reduce]]\npath = \"a\"\ndecimals = 1\n[[reduce]]\npath = \"*\"\nevery = \"1h\"\n"
    );
    let pair = Pair::new(&chosen);
    let shore = pair.run(&pair.shore);
    let ended = pair.scratch.run(["link", "run", &pair.boat]);
    ended.expect(0, &[]);
    shore.kill();
    let log = fs::read_to_string(&pair.log).expect("the log is there");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 20, "{log}");
    assert!(
        log.contains(r#"{"path":"a","value":0.1},{"path":"b","value":1}"#),
        "{log}"
    );
    assert_eq!(log.matches(r#""path":"b""#).count(), 1, "{log}");
    assert!(log.contains(r#"[{"path":"a","value":19.1}]"#), "{log}");
}

/// Whether a spool has the record with this value, which stays there until it is durable.
fn is_spooled(folder: &std::path::Path, value: u64) -> bool {
    let Ok(files) = fs::read_dir(folder) else {
        return false;
    };
    let wanted = format!("\"value\":{value}}}");
    let mut logs = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "log"));
    logs.any(|path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .windows(wanted.len())
            .any(|part| part == wanted.as_bytes())
    })
}
