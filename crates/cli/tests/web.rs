//! `serve --web` and `towline web`: files over HTTP/3.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::{Ended, Running, Scratch, Server, http_get, wait_until};
use serde_json::Value;

/// A server of a folder, and the folder.
fn site(scratch: &Scratch) -> Server {
    scratch.write("site/large", 5_000_000);
    scratch.write("site/sub/index.html", 100);
    scratch.write("secret", 10);
    let folder = scratch.path("site");
    scratch.listen([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--web",
        folder.to_str().unwrap(),
    ])
}

fn get(scratch: &Scratch, server: &Server, path: &str, flags: &[&str]) -> Ended {
    let url = server.url_of(path).replacen("towline://", "https://", 1);
    let args = ["web", "get", &url]
        .into_iter()
        .chain(flags.iter().copied());
    scratch.run(args)
}

#[test]
fn a_file_comes_over_http3_byte_for_byte() {
    let scratch = Scratch::new();
    let server = site(&scratch);
    let out = scratch.path("out");
    let flags = ["--json", "--out", out.to_str().unwrap()];
    let record = get(&scratch, &server, "large", &flags).record("towline.web.get/1");
    assert_eq!(
        (&record["status"], &record["bytes"]),
        (&200.into(), &5_000_000.into())
    );
    let large = fs::read(scratch.path("site/large")).unwrap();
    assert!(fs::read(&out).unwrap() == large);

    let url = server.url_of("large").replacen("towline://", "https://", 1);
    let to_stdout = Running::start(scratch.towline(["web", "get", &url])).wait_bytes();
    assert!(to_stdout == large);

    let range = [
        "--range",
        "1000-1999",
        "--json",
        "--out",
        out.to_str().unwrap(),
    ];
    let record = get(&scratch, &server, "large", &range).record("towline.web.get/1");
    assert_eq!(record["status"], 206);
    assert!(fs::read(&out).unwrap() == large[1000..2000]);
}

#[test]
fn a_folder_shows_its_index_and_nothing_outside_is_shown() {
    let scratch = Scratch::new();
    let server = site(&scratch);
    let record = get(&scratch, &server, "sub/", &["--head", "--json"]).record("towline.web.get/1");
    let field = |name: &str| -> Value {
        let fields = record["fields"].as_array().unwrap();
        let found = fields.iter().find(|field| field[0] == name);
        found.map_or(Value::Null, |field| field[1].clone())
    };
    assert_eq!(
        (&record["status"], &record["bytes"]),
        (&200.into(), &0.into())
    );
    assert_eq!(field("content-type"), "text/html; charset=utf-8");
    assert_eq!(field("content-length"), "100");
    assert!(field("etag").is_string());
    for path in ["", "nothing", "%2e%2e/secret", "sub/../../secret"] {
        get(&scratch, &server, path, &[]).expect(1, &["the server answers 404 Not Found"]);
    }
}

#[test]
fn the_other_services_are_on_the_same_port() {
    let scratch = Scratch::new();
    let server = site(&scratch);
    let echoes = ["echo", &server.url, "--count", "2", "--interval", "1ms"];
    scratch.run(echoes).expect(0, &[]);
    get(&scratch, &server, "sub/", &["--head"]).expect(0, &["status 200 OK"]);
}

#[test]
fn a_server_without_web_is_said_to_speak_something_else() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let url = server.url_of("echo").replacen("towline://", "https://", 1);
    for command in ["get", "echo"] {
        let ended = scratch.run(["web", command, &url]);
        assert_ne!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("protocol"), "{ended:?}");
    }
}

#[test]
fn browsers_of_this_machine_get_a_page_that_knows_the_certificates() {
    let scratch = Scratch::new();
    let mut command = scratch.towline(["serve", "--listen", "127.0.0.1:0", "--web"]);
    command.arg("--json");
    let (_server, record) = Server::start_saying(command, "towline.listening/1").unwrap();
    let web = &record["web"];
    let at = web["page"].as_str().unwrap();
    assert!(http_get(at, "/").contains("<!doctype html>"));
    let about = http_get(at, "/towline.json");
    let (_, about) = about.split_once("\r\n\r\n").unwrap();
    let about: Value = serde_json::from_str(about).unwrap();
    assert_eq!(about["url"], web["url"]);
    let shown = scratch
        .run(["cert", "show", "--json"])
        .record("towline.cert/2");
    let pins = [&shown["certificate_pin"], &shown["next"]["certificate_pin"]];
    assert_eq!(about["pins"], Value::from(pins.map(Value::clone).to_vec()));
    assert_eq!(web["certificate_pins"], about["pins"]);
    let pin = scratch.run(["cert", "pin", "--certificate"]);
    assert_eq!(*pins[0], pin.stdout.trim());
}

#[test]
fn a_client_that_was_given_both_hashes_is_let_in_before_and_after_the_swap() {
    let scratch = Scratch::new();
    let [old, new] = scratch.certificates_that_swap_in(Duration::from_secs(12));
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    assert_eq!(server.pins(), [old.clone(), new.clone()]);
    let client = Scratch::new();
    let echo = |pins: &str| {
        let url = format!("https://{}/echo#{pins}", server.address);
        client.run(["web", "echo", &url, "-c", "1"]).code
    };
    let both = format!("{old}&{new}");
    assert_eq!(echo(&both), Some(0));
    assert_eq!(echo(&new), Some(4), "it is not shown yet");
    // No moment is without one of the two.
    wait_until("the swap", || {
        assert_eq!(echo(&both), Some(0));
        server.pins()[0] == new
    });
    assert_eq!(echo(&both), Some(0));
    assert_eq!(echo(&new), Some(0));
    assert_eq!(echo(&old), Some(4));
    let pins = server.pins();
    assert!(pins.len() == 2 && !pins.contains(&old), "{pins:?}");
}

#[test]
fn a_raw_key_is_nothing_for_browsers() {
    let scratch = Scratch::new();
    let args = ["serve", "--listen", "127.0.0.1:0", "--web", "--raw-key"];
    scratch.run(args).expect(2, &["browsers take no raw key"]);
}

/// A browser says no more than that the handshake failed.
#[test]
fn a_certificate_that_browsers_do_not_take_by_its_hash_is_announced() {
    let scratch = Scratch::new();
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED certificates for browsers: there is no openssl here");
        return;
    }
    let p256 = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    for (key, days, words) in [
        (
            &["rsa:2048"][..],
            "7",
            Some("its key is RSA, and browsers want ECDSA with P-256"),
        ),
        (
            &p256,
            "30",
            Some("it lives 30 days, and browsers want 14 at most"),
        ),
        (&p256, "7", None),
    ] {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-subj", "/CN=localhost"])
            .args([
                "-keyout", "key.pem", "-out", "cert.pem", "-days", days, "-newkey",
            ])
            .args(key)
            .current_dir(scratch.path(""))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let file = |name: &str| scratch.path(name).to_str().unwrap().to_owned();
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        let serve = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--web",
            "--cert",
            &cert,
            "--key",
            &key,
        ];
        let server = scratch.listen(serve);
        // Our own clients take it.
        let url = server.url_of("echo").replacen("towline://", "https://", 1);
        let echo = ["web", "echo", &url, "--count", "1"];
        scratch.run(echo).expect(0, &[]);
        server.signal(rustix::process::Signal::INT);
        let ended = server.wait();
        let warned = ended
            .stderr
            .contains("browsers do not take our certificate");
        assert_eq!(warned, words.is_some(), "{ended:?}");
        if let Some(words) = words {
            assert!(ended.stderr.contains(words), "{ended:?}");
            assert!(ended.stderr.contains("towline cert dev"), "{ended:?}");
        }
    }
}

#[test]
fn a_wrong_pin_is_told_with_what_was_expected_and_what_was_seen() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    let right = server.url_of("echo").replacen("towline://", "https://", 1);
    let (address, pin) = right.split_once('#').unwrap();
    let wrong = format!("sha256/{}", "0".repeat(64));
    let url = format!("{address}#{wrong}");
    for command in ["echo", "get"] {
        let ended = scratch.run(["web", command, &url]);
        let expected = format!("we expect {wrong})");
        ended.expect(
            4,
            &[&expected, &format!("the key {pin}"), "compare the pin"],
        );
    }
}

#[test]
fn sessions_echo_over_streams_and_datagrams() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    let url = server.url_of("echo").replacen("towline://", "https://", 1);
    for over in ["stream", "datagram"] {
        let mut args = vec![
            "web",
            "echo",
            &url,
            "--count",
            "5",
            "--interval",
            "1ms",
            "--json",
        ];
        args.extend((over == "datagram").then_some("--datagram"));
        let record = scratch.run(args).record("towline.echo/1");
        assert_eq!(
            (&record["over"], &record["sent"]),
            (&over.into(), &5.into())
        );
        assert_eq!(record["received"], 5, "{record}");
    }
    let nowhere = url.replacen("/echo#", "/nowhere#", 1);
    let ended = scratch.run(["web", "echo", &nowhere, "--count", "1"]);
    ended.expect(1, &["refused the session with status 404", "/echo"]);
}

fn perf(scratch: &Scratch, server: &Server, flags: &[&str]) -> Ended {
    let url = server.url_of("").replacen("towline://", "https://", 1);
    let args = ["web", "perf", &url, "-t", "1s", "-i", "250ms"];
    scratch.run(args.iter().chain(flags))
}

#[test]
fn streams_of_several_sessions_are_measured_each_way() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    for (direction, ways) in [
        ("upload", &["upload"][..]),
        ("download", &["download"]),
        ("both", &["upload", "download"]),
    ] {
        let flags = [
            "--direction",
            direction,
            "-P",
            "3",
            "--sessions",
            "2",
            "--json",
        ];
        let record = perf(&scratch, &server, &flags)
            .expect(0, &[])
            .record("towline.web.perf/1");
        let (start, end) = (&record["start"], &record["end"]);
        assert_eq!(
            (&start["sessions"], &start["streams"]),
            (&2.into(), &3.into())
        );
        assert_eq!(start["dialect"], "draft-16", "{record}");
        let intervals = record["intervals"].as_array().unwrap();
        for way in ["upload", "download"] {
            let of_way = || intervals.iter().filter(|row| row["direction"] == way);
            if !ways.contains(&way) {
                assert_eq!((of_way().count(), &end[way]), (0, &Value::Null));
                continue;
            }
            // Six streams, each of which has carried something in the end.
            let mut carried = [0; 6];
            for row in of_way() {
                let streams = row["streams"].as_array().unwrap();
                assert_eq!(streams.len(), carried.len());
                for (sum, bytes) in carried.iter_mut().zip(streams) {
                    *sum += bytes.as_u64().unwrap();
                }
            }
            assert!(of_way().count() >= 2, "{record}");
            assert!(carried.iter().all(|bytes| *bytes > 0), "{carried:?}");
            // What came behind the last row counts, too.
            let total = end[way]["bytes"].as_u64().unwrap();
            assert!(total >= carried.iter().sum::<u64>(), "{record}");
            let rate = end[way]["bits_per_second"].as_f64().unwrap();
            let seconds = end["seconds"].as_f64().unwrap();
            assert!((rate * seconds / 8.0 - total as f64).abs() < 1.0 + total as f64 * 1e-6);
        }
    }
    let table = perf(&scratch, &server, &["--direction", "both"]);
    table.expect(0, &["interval", "upload", "download", "sum", "rtt"]);
}

#[test]
fn datagrams_are_measured_in_several_sessions() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    let flags = [
        "--datagrams",
        "--rate",
        "200",
        "--size",
        "100",
        "--sessions",
        "3",
    ];
    let json = [&flags[..], &["--json"]].concat();
    let record = perf(&scratch, &server, &json)
        .expect(0, &[])
        .record("towline.web.perf/1");
    let of = |what: &str| record["end"]["datagrams"][what].as_f64().unwrap();
    // Of 600; a machine with other work may come late.
    assert!((300.0..=610.0).contains(&of("sent")), "{record}");
    assert!(of("received") > 0.5 * of("sent") && of("received") <= of("sent"));
    let loss = 100.0 * (of("sent") - of("received")) / of("sent");
    assert!((of("loss_percent") - loss).abs() < 1e-6, "{record}");
    assert!(0.0 < of("rtt_min") && of("rtt_min") <= of("rtt_median"));
    assert!(of("rtt_median") <= of("rtt_p99") && of("rtt_p99") <= of("rtt_max"));
    perf(&scratch, &server, &flags).expect(0, &["% lost", "rtt min/median", "3 sessions"]);
    let large = ["--datagrams", "--size", "60000"];
    perf(&scratch, &server, &large).expect(2, &["--size 60000", "one datagram takes"]);
}

#[test]
fn a_measurement_says_what_is_missing_or_missed() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0", "--web"]);
    perf(&scratch, &server, &["--fail-if", "rate<1Mbit"]).expect(0, &[]);
    perf(&scratch, &server, &["--fail-if", "rate<1Tbit"]).expect(8, &["is below"]);
    let of_ours = ["--direction", "download", "--fail-if", "loss>99%"];
    perf(&scratch, &server, &of_ours).expect(8, &["the loss is not known"]);
    // The path of something else.
    let elsewhere = server.url_of("echo").replacen("towline://", "https://", 1);
    scratch.run(["web", "perf", &elsewhere]).expect(
        1,
        &["has no sessions at /echo/upload", "towline serve --web"],
    );
    // More than a server permits at once.
    let many = ["-P", "64", "--sessions", "2"];
    perf(&scratch, &server, &many).expect(1, &["permits no more streams", "--parallel"]);
    let plain = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    perf(&scratch, &plain, &[]).expect(4, &["speaks none of our protocols"]);
}
