//! Arguments, records and the smaller commands as real programs.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use common::Scratch;
use rustix::process::Signal;

const PIN: &str = "abababababababababababababababababababababababababababababababab";

#[test]
fn wrong_usage_ends_with_code_2_and_an_explanation() {
    let scratch = Scratch::new();
    let url = format!("towline://127.0.0.1:1/#sha256/{PIN}");
    let url = url.as_str();
    for (args, word) in [
        (&[][..], "Usage"),
        (&["fly"], "fly"),
        (&["send", "/etc/hostname"], "URL"),
        (
            &["send", "/etc/hostname", "https://example.com/"],
            "not a URL",
        ),
        (&["send", "/etc/hostname", "towline://h/../x"], "`..`"),
        (
            &["send", "/etc/hostname", url, "--limit", "fast"],
            "not a rate",
        ),
        (
            &["send", "/etc/hostname", url, "--limit", "999"],
            "the least is 1000 bytes a second",
        ),
        (&["serve", "--limit", "1"], "too low for a handshake"),
        (&["send", "/etc/hostname", url, "-P", "99"], "99"),
        (
            &["echo", url, "--insecure", "--pin", PIN],
            "cannot be used with",
        ),
        (&["echo", url, "--size", "4"], "--size"),
        (&["echo", url, "--pin", "12"], "--pin 12"),
        (&["recv"], "--listen"),
        (
            &["recv", url, "--listen", "127.0.0.1:0"],
            "cannot be used with",
        ),
        (&["recv", url, "--once"], "cannot be used with"),
        (&["serve", "--cert", "x.pem"], "--key"),
        (&["serve", "--root", "/nowhere/at/all"], "/nowhere/at/all"),
        (
            &["perf", "client", url, "-t", "1", "-n", "1M"],
            "cannot be used with",
        ),
        (&["perf", "client", url, "--cc", "magic"], "magic"),
        (
            &["perf", "client", url, "--cc", "fixed:1"],
            "the least fixed rate is 1000 bytes a second",
        ),
        (&["perf", "client", url, "--cipher", "rot13"], "rot13"),
        (&["perf", "client", url, "--mtu", "100"], "100"),
        (&["perf", "server", "--shards", "0"], "--shards"),
        (&["perf", "server", "--shards", "65"], "--shards"),
        (&["perf", "client", url, "--fail-if", "rate>1"], "condition"),
        (
            &[
                "relay",
                "127.0.0.1:0",
                "127.0.0.1:1",
                "--both",
                "rate=0mbit",
            ],
            "--both: link setting",
        ),
        (
            &["relay", "127.0.0.1:0", "127.0.0.1:1", "--up", "speed=1"],
            "--up",
        ),
        (
            &[
                "relay",
                "127.0.0.1:0",
                "127.0.0.1:1",
                "--up",
                "loss=1%",
                "--both",
                "loss=1%",
            ],
            "cannot be used with",
        ),
        (
            &["relay", "127.0.0.1:0", "127.0.0.1:1", "--nat", "every=0s"],
            "--nat: `every=0s`",
        ),
        (
            &[
                "relay",
                "127.0.0.1:0",
                "192.0.2.1:1",
                "--nat",
                "every=1s,change=address",
            ],
            "127.0.0.0/8",
        ),
        (
            &[
                "relay",
                "127.0.0.1:0",
                "127.0.0.1:1",
                "--both",
                "mtu=1400,icmp=on",
            ],
            "TUN form",
        ),
        (
            &["relay", "127.0.0.1:0", "127.0.0.1:1", "--create"],
            "--tun",
        ),
        (
            &["relay", "127.0.0.1:0", "127.0.0.1:1", "--tun"],
            "cannot be used with",
        ),
        (
            &["relay", "127.0.0.1:0", "127.0.0.1:1", "-i", "1ms"],
            "100 ms",
        ),
        (&["relay", "--tun", "--client-ns", "a/b"], "a/b"),
        (
            &["relay", "--tun", "--client-ns", "towline-not-there"],
            "ip netns add towline-not-there",
        ),
    ] {
        scratch.run(args).expect(2, &[word]);
    }
}

#[test]
fn help_tells_exit_codes_and_the_form_of_urls() {
    let scratch = Scratch::new();
    scratch
        .run(["--help"])
        .expect(0, &["130  interrupted", "towline://HOST"]);
    scratch.run(["--version"]).expect(0, &["towline"]);
}

#[test]
fn echo_counts_round_trips_over_streams_and_datagrams() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    for extra in [&[][..], &["--datagram"], &["--size", "100k"]] {
        let args = ["echo", &server.url, "-c", "5", "-i", "10ms", "--json"];
        let record = scratch
            .run(args.iter().chain(extra))
            .expect(0, &[])
            .record("towline.echo/1");
        assert_eq!(
            (record["sent"].as_u64(), record["received"].as_u64()),
            (Some(5), Some(5)),
            "{record}"
        );
        assert!(
            record["rtt_min"].as_f64() <= record["rtt_avg"].as_f64()
                && record["rtt_avg"].as_f64() <= record["rtt_max"].as_f64()
        );
        assert!(record["rtt_mdev"].as_f64().is_some_and(|mdev| mdev >= 0.0));
    }
    scratch
        .run(["echo", &server.url, "-c", "1"])
        .expect(0, &["seq=0", "rtt min/avg/max/mdev"]);
    scratch
        .run([
            "echo",
            &server.url,
            "-c",
            "1",
            "--datagram",
            "--size",
            "10k",
        ])
        .expect(2, &["one datagram"]);
}

#[test]
fn datagrams_lost_on_the_way_are_counted() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let relay = scratch.listen([
        "relay",
        "127.0.0.1:0",
        &server.address,
        "--up",
        "loss=20%",
        "--seed",
        "3",
    ]);
    let args = [
        "echo",
        &server.url_through(&relay),
        "-c",
        "200",
        "-i",
        "2ms",
        "--datagram",
        "--json",
    ];
    let record = scratch.run(args).expect(0, &[]).record("towline.echo/1");
    let loss = record["loss_percent"].as_f64().unwrap();
    assert!((8.0..35.0).contains(&loss), "{record}");
}

#[test]
fn perf_measures_both_directions_and_both_ends() {
    let scratch = Scratch::new();
    let server = scratch.listen(["perf", "server", "--listen", "127.0.0.1:0"]);
    for direction in [&[][..], &["-R"]] {
        let args = [
            "perf",
            "client",
            &server.url,
            "-t",
            "1",
            "-O",
            "0.3",
            "-i",
            "0.2",
            "-P",
            "3",
            "--json",
        ];
        let record = scratch
            .run(args.iter().chain(direction))
            .expect(0, &[])
            .record("towline.perf/1");
        assert!(
            record["end"]["bits_per_second"].as_f64().unwrap() > 1e6,
            "{record}"
        );
        for end in ["here", "there"] {
            assert!(
                record["end"][end]["bytes"].as_u64().unwrap() > 0,
                "{record}"
            );
            assert!(
                record["end"][end]["cpu_percent"].as_f64().unwrap() > 0.0,
                "{record}"
            );
            assert!(
                record["start"][end]["gso_segments"].is_u64()
                    && record["start"][end]["recv_buffer_granted"].is_u64()
            );
        }
        let rows = record["intervals"].as_array().unwrap();
        assert!(rows.len() >= 5, "{rows:?}");
        assert_eq!(rows[0]["omitted"], true);
        assert_eq!(rows.last().unwrap()["omitted"], false);
        assert_eq!(rows[0]["streams"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn perf_serves_from_two_shards_and_says_what_each_did() {
    let scratch = Scratch::new();
    let server = scratch.listen(["perf", "server", "--listen", "127.0.0.1:0", "--shards", "2"]);
    for _ in 0..12 {
        let args = ["perf", "client", &server.url, "-n", "1M", "--json"];
        let record = scratch.run(args).expect(0, &[]).record("towline.perf/1");
        assert_eq!(record["start"]["there"]["shards"], 2, "{record}");
        for end in ["here", "there"] {
            assert!(record["end"][end]["advice"].is_array(), "{record}");
        }
    }
    server.signal(Signal::INT);
    let record = server.wait().record("towline.shards/1");
    let shards = record["shards"].as_array().unwrap();
    let connections: Vec<_> = shards
        .iter()
        .map(|shard| shard["connections"].as_u64().unwrap())
        .collect();
    assert_eq!(connections.len(), 2);
    assert_eq!(connections.iter().sum::<u64>(), 12);
    let received = |shard: &serde_json::Value| shard["bytes_received"].as_u64().unwrap();
    assert!(
        shards.iter().map(received).sum::<u64>() > 12_000_000,
        "{record}"
    );
}

#[test]
fn perf_moves_a_number_of_bytes_with_a_chosen_cipher_and_controller() {
    let scratch = Scratch::new();
    let server = scratch.listen(["perf", "server", "--listen", "127.0.0.1:0"]);
    for direction in [&[][..], &["-R"]] {
        let args = [
            "perf",
            "client",
            &server.url,
            "-n",
            "10M",
            "-P",
            "2",
            "--json",
            "--cipher",
            "chacha20",
            "--kx",
            "x25519",
            "--cc",
            "newreno",
            "--mtu",
            "1400",
        ];
        let record = scratch
            .run(args.iter().chain(direction))
            .expect(0, &[])
            .record("towline.perf/1");
        assert_eq!(record["end"]["here"]["bytes"], 10_000_000, "{record}");
        assert_eq!(record["end"]["there"]["bytes"], 10_000_000, "{record}");
        assert_eq!(
            record["start"]["cipher_suite"],
            "TLS_CHACHA20_POLY1305_SHA256"
        );
        assert_eq!(record["start"]["key_exchange"], "X25519");
        assert_eq!(record["start"]["here"]["congestion"], "newreno");
    }
}

#[test]
fn a_missed_threshold_ends_with_code_8() {
    let scratch = Scratch::new();
    let server = scratch.listen(["perf", "server", "--listen", "127.0.0.1:0"]);
    let args = ["perf", "client", &server.url, "-t", "0.3"];
    scratch
        .run(args.iter().chain(&["--fail-if", "rate<900Gbit"]))
        .expect(8, &["below"]);
    scratch
        .run(
            args.iter()
                .chain(&["--fail-if", "rate<1kbit", "--fail-if", "rtt>10s"]),
        )
        .expect(0, &["sum there"]);
}

#[test]
fn a_server_without_a_service_says_so() {
    let scratch = Scratch::new();
    let out = scratch.path("out");
    let receiver = scratch.listen([
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--out",
        out.to_str().unwrap(),
    ]);
    scratch
        .run(["perf", "client", &receiver.url, "-t", "1"])
        .expect(1, &["no measurements"]);
    scratch
        .run(["echo", &receiver.url, "-c", "1"])
        .expect(1, &["does not echo"]);
    scratch
        .run(["recv", &receiver.url, "--out", out.to_str().unwrap()])
        .expect(1, &["offers no files"]);
    let perf = scratch.listen(["perf", "server", "--listen", "127.0.0.1:0"]);
    scratch
        .run(["send", "/etc/hostname", &perf.url])
        .expect(1, &["does not receive files"]);
}

#[test]
fn our_key_stays_and_its_certificate_is_renewed_on_demand() {
    let scratch = Scratch::new();
    let dev = |extra: &[&str]| {
        scratch
            .run(["cert", "dev", "--json"].iter().chain(extra))
            .expect(0, &[])
            .record("towline.cert.dev/2")
    };
    let first = dev(&[]);
    assert_eq!(
        (&first["new"], &first["new_key"]),
        (&true.into(), &true.into())
    );
    let second = dev(&[]);
    assert_eq!(
        (&second["new"], &second["new_key"], &second["pin"]),
        (&false.into(), &false.into(), &first["pin"])
    );
    assert_eq!(second["certificate_pin"], first["certificate_pin"]);
    let pin = scratch.run(["cert", "pin"]).expect(0, &[]);
    assert_eq!(Some(pin.stdout.trim()), first["pin"].as_str());
    let file = first["certificate_file"].as_str().unwrap();
    let shown = scratch
        .run(["cert", "show", file, "--json"])
        .expect(0, &[])
        .record("towline.cert/2");
    assert_eq!(
        (&shown["pin"], &shown["certificate_pin"], &shown["expires"]),
        (&first["pin"], &first["certificate_pin"], &first["expires"])
    );
    let people = scratch.run(["cert", "show"]).expect(0, &["UTC"]);
    assert!(!people.stdout.contains(&first["expires"].to_string()));
    let third = dev(&["--renew", "--name", "boat.example"]);
    assert_eq!(
        (&third["new"], &third["pin"]),
        (&true.into(), &first["pin"])
    );
    assert_ne!(third["certificate_pin"], first["certificate_pin"]);
    assert_eq!(third["names"][0], "boat.example");
    let fourth = dev(&["--new-key"]);
    assert_ne!(fourth["pin"], first["pin"]);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(first["key_file"].as_str().unwrap())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    scratch
        .run(["cert", "show", "/etc/hostname"])
        .expect(4, &["certificate"]);
}

#[test]
fn a_ca_file_is_enough_where_there_is_no_pin() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let url = server.url.split_once('#').unwrap().0;
    let ca = scratch.path("home/cert.pem");
    scratch
        .run(["echo", url, "-c", "1", "--cacert", ca.to_str().unwrap()])
        .expect(0, &[]);
    let key = scratch.path("home/key.pem");
    let own = scratch.listen([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--cert",
        ca.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
    ]);
    scratch.run(["echo", &own.url, "-c", "1"]).expect(0, &[]);
}

#[test]
fn errors_are_records_too() {
    let scratch = Scratch::new();
    let ended = scratch.run(["serve", "--root", "/nowhere/at/all", "--json"]);
    let record = ended.record("towline.error/1");
    assert_eq!(record["exit_code"], 2);
}

#[test]
fn a_server_stops_at_ctrl_c_and_tells_its_clients() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let client = common::Running::start(scratch.towline(["echo", &server.url, "-i", "50ms"]));
    std::thread::sleep(std::time::Duration::from_millis(400));
    server.signal(Signal::INT);
    server.wait().expect(130, &[]);
    client
        .wait()
        .expect(7, &["the server was interrupted and is stopping"]);
}
