//! Logs of connections and metrics, of real programs.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use common::{Scratch, Server, wait_until};

/// The logs in a folder by role.
fn logs(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let logs = entries.map(|entry| {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        (stem.split_once('_').unwrap().1.to_owned(), path)
    });
    logs.collect()
}

#[test]
fn a_transfer_over_a_bad_link_is_logged_by_both_ends_and_drawn() {
    let scratch = Scratch::new();
    let file = scratch.write("in/file", 2_000_000);
    let (out, folder) = (scratch.path("out"), scratch.path("logs"));
    let (out, folder_name) = (out.to_str().unwrap(), folder.to_str().unwrap());
    let listen = ["recv", "--listen", "127.0.0.1:0", "--once", "--out", out];
    let server = scratch.listen(listen.into_iter().chain(["--qlog", folder_name]));
    let upstream = server.address.clone();
    let relay = scratch.listen([
        "relay",
        "127.0.0.1:0",
        &upstream,
        "--both",
        "loss=2%,delay=5ms",
    ]);
    let url = server.url_through(&relay);
    let mut send = scratch.towline(["send", file.to_str().unwrap(), &url, "--json"]);
    // The variable that test runners of QUIC set says the same as the flag.
    send.env("QLOGDIR", &folder);
    let sent = common::Running::start(send).wait().expect(0, &[]);
    let stats = sent.record("towline.send/1")["connection"].clone();
    for name in [
        "datagrams_sent",
        "probe_timeouts",
        "work",
        "packets_overworked",
    ] {
        assert!(stats[name].is_u64(), "{name} in {stats}");
    }
    server.wait().expect(0, &[]);

    let logs = logs(&folder);
    assert_eq!(logs.keys().collect::<Vec<_>>(), ["client", "server"]);
    let id = |role: &str| logs[role].to_str().unwrap().replace(role, "");
    assert_eq!(id("client"), id("server"), "one connection, one name");
    let log = logs["client"].to_str().unwrap();
    let svg = scratch.path("plot.svg");
    let args = ["qlog", log, "--svg", svg.to_str().unwrap(), "--json"];
    let record = scratch.run(args).expect(0, &[]).record("towline.qlog/1");
    assert_eq!(record["role"], "client");
    assert_eq!(record["unreadable"], 0, "{record}");
    assert_eq!(record["closed"], "closed by this side");
    let number = |record: &serde_json::Value, name: &str| record[name].as_u64().unwrap();
    // What came after the result was printed is in the log only.
    assert!(number(&record, "packets_sent") >= number(&stats, "packets_sent"));
    assert!(number(&record, "bytes_sent") > 2_000_000);
    assert!(number(&record, "packets_lost") >= number(&stats, "packets_lost").max(1));
    assert!(record["min_rtt"].as_f64().unwrap() >= 0.01, "{record}");
    let plot = fs::read_to_string(svg).unwrap();
    for title in ["rate, Mbit/s", "round trip, ms", "packets lost in each"] {
        assert!(plot.contains(title), "{title}");
    }
    let server_log = logs["server"].to_str().unwrap();
    // The link may lose the client's close, and the server then ends by itself.
    scratch
        .run(["qlog", server_log])
        .expect(0, &["server of ", "closed: closed by "]);
}

#[test]
fn files_and_folders_that_will_not_do_are_told() {
    let scratch = Scratch::new();
    let file = scratch.write("file", 10);
    let file = file.to_str().unwrap();
    scratch.run(["qlog", file]).expect(2, &["is not a qlog"]);
    scratch
        .run(["qlog", "/nowhere/x.sqlog"])
        .expect(1, &["/nowhere/x.sqlog"]);
    let args = ["serve", "--listen", "127.0.0.1:0", "--qlog", file];
    scratch.run(args).expect(2, &["--qlog", "name a folder"]);
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "192.0.2.1:1",
    ];
    scratch.run(args).expect(1, &["--metrics 192.0.2.1:1"]);
}

/// The metrics that a server serves.
fn metrics(address: &str) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

fn metrics_address(server: &mut Server) -> String {
    let record = server.record("towline.metrics/1");
    record["address"].as_str().unwrap().to_owned()
}

#[test]
fn metrics_grow_with_what_a_server_does_and_keep_what_is_over() {
    let scratch = Scratch::new();
    let listen = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut server = scratch.listen(listen);
    let address = metrics_address(&mut server);
    assert_eq!(
        metrics(&address)["towline_endpoint_admitted_total{shard=\"0\"}"],
        0.0
    );
    let args = ["perf", "client", &server.url, "-n", "1M", "--json"];
    scratch.run(args).expect(0, &[]);
    wait_until("the connection to be gone", || {
        metrics(&address)["towline_endpoint_connections{shard=\"0\"}"] == 0.0
            && metrics(&address)["towline_endpoint_admitted_total{shard=\"0\"}"] == 1.0
    });
    let after = metrics(&address);
    assert!(
        after["towline_connection_bytes_received_total"] > 1e6,
        "{after:?}"
    );
    assert!(after["towline_socket_bytes_received_total{shard=\"0\"}"] > 1e6);
    assert!(
        !after.contains_key("towline_connection_smoothed_rtt_seconds{of=\"mean\"}"),
        "nobody is there to be measured"
    );
}

#[test]
fn a_relays_links_have_metrics_too() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let listen = [
        "relay",
        "127.0.0.1:0",
        &server.address,
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut relay = scratch.listen(listen);
    let address = metrics_address(&mut relay);
    let url = server.url_through(&relay);
    scratch
        .run(["echo", &url, "--count", "3", "--interval", "10ms"])
        .expect(0, &[]);
    wait_until("the relay's numbers", || {
        let all = metrics(&address);
        all["towline_relay_clients_total"] == 1.0 && all["towline_relay_up_bytes_in_total"] > 1200.0
    });
}
