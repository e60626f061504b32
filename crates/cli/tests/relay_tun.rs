//! `towline relay --tun` with real programs in both namespaces. Skipped by name where the system
//! does not permit it (not root, no `ip`, no TUN devices).
#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{Running, Scratch, Server};
use rustix::process::Signal;

const ADDRESS: &str = "10.77.2.2:4433";

/// A relay that made its namespaces, called after this process and a number.
struct Tun {
    relay: Server,
    client: String,
    server: String,
}

impl Tun {
    fn start(scratch: &Scratch, link: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("towline-e2e-{}-{number}-{end}", std::process::id());
        let (client, server) = (name("client"), name("server"));
        let args = ["relay", "--tun", "--create"]
            .into_iter()
            .chain(["--client-ns", &client, "--server-ns", &server])
            .chain(link.iter().copied());
        let mut running = scratch.towline(args);
        running.arg("--json");
        let refused = ["needs root", "is not installed", "/dev/net/tun is not"];
        match Server::start_saying(running, "towline.tun/1") {
            Ok((relay, record)) => {
                assert_eq!(record["server"]["ipv4"], "10.77.2.2");
                Some(Self {
                    relay,
                    client,
                    server,
                })
            }
            Err(why) if refused.iter().any(|words| why.contains(words)) => {
                let why = why.lines().next().unwrap_or_default().to_owned();
                // The print macros would be captured.
                let _ = writeln!(std::io::stderr(), "SKIPPED relay --tun: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    }
}

/// `towline` inside a namespace.
fn towline_in<S: AsRef<OsStr>>(
    namespace: &str,
    scratch: &Scratch,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_towline")])
        .args(args)
        .env("TOWLINE_HOME", scratch.path("home"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn two_programs_meet_through_namespaces_that_go_with_ctrl_c() {
    let scratch = Scratch::new();
    let link = ["--both", "delay=10ms,drop=3", "-i", "200ms"];
    let Some(mut tun) = Tun::start(&scratch, &link) else {
        return;
    };
    let server = Server::start(towline_in(
        &tun.server,
        &scratch,
        ["serve", "--listen", ADDRESS],
    ));
    let args = ["echo", &server.url, "-c", "3", "-i", "10ms", "--json"];
    let echoed = Running::start(towline_in(&tun.client, &scratch, args))
        .wait()
        .expect(0, &[])
        .record("towline.echo/1");
    assert_eq!(echoed["received"], 3, "{echoed}");
    assert!(echoed["rtt_min"].as_f64().unwrap() >= 0.02, "{echoed}");

    let interval = tun.relay.record("towline.relay.interval/1");
    assert_eq!(interval["up"]["queue_bytes"], 0, "{interval}");
    tun.relay.signal(Signal::INT);
    let relayed = tun.relay.wait().expect(130, &[]);
    let relayed = relayed.record("towline.relay.tun/1");
    for way in ["up", "down"] {
        assert_eq!(relayed[way]["drops"]["listed"], 1, "{relayed}");
        assert!(
            relayed[way]["datagrams_delivered"].as_u64() > Some(4),
            "{relayed}"
        );
    }
    for namespace in [tun.client, tun.server] {
        assert!(!Path::new("/var/run/netns").join(namespace).exists());
    }
}

#[test]
fn a_closed_terminal_ends_it_well_and_what_a_killed_one_left_is_named() {
    let scratch = Scratch::new();
    let Some(tun) = Tun::start(&scratch, &[]) else {
        return;
    };
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("a line").trim(), 16).expect("a mask");
    if ignored & 1 != 0 {
        let why = "SKIPPED a closed terminal: SIGHUP is ignored (nohup)";
        let _ = writeln!(std::io::stderr(), "{why}");
        return;
    }
    // The shell passes on what the kernel sends, at a moment of its own.
    for _ in 0..10 {
        tun.relay.signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(5));
    }
    tun.relay.wait().expect(130, &["stopping"]);
    for namespace in [&tun.client, &tun.server] {
        assert!(!Path::new("/var/run/netns").join(namespace).exists());
    }

    let Some(tun) = Tun::start(&scratch, &[]) else {
        return;
    };
    tun.relay.kill();
    let names = ["--client-ns", &tun.client, "--server-ns", &tun.server];
    let args = ["relay", "--tun", "--create"];
    let remove = format!("`ip netns del {}; ip netns del {}`", tun.client, tun.server);
    scratch
        .run(args.into_iter().chain(names))
        .expect(2, &[&remove]);
    let removing = Command::new("sh")
        .arg("-c")
        .arg(remove.trim_matches('`'))
        .status();
    assert!(removing.expect("sh starts").success());
}
