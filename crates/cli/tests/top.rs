//! `towline top` as a real program, in front of sockets that answer as running links do.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Running, Scratch, wait_until};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

/// Answers at the socket of a link, the number of the question in hand.
fn answer(scratch: &Scratch, name: &str, report: impl Fn(u64) -> Value + Send + 'static) {
    let folder = scratch.path("towline");
    fs::create_dir_all(&folder).unwrap();
    let listener = UnixListener::bind(folder.join(format!("link-{name}.sock"))).unwrap();
    thread::spawn(move || {
        for (count, stream) in (0..).zip(listener.incoming()) {
            // Who asks may have gone.
            let _ = writeln!(stream.unwrap(), "{}", report(count));
        }
    });
}

fn boat(count: u64) -> Value {
    json!({
        "schema": "towline.link.show/1", "name": "boat", "role": "boat", "state": "live", "via": "tls",
        "quality": 64, "bytes_per_record": 6.1, "rtt_ms": 612.3, "rtt_p95_ms": 700.0, "loss": null,
        "bytes_sent": count * 1000, "records": count * 10, "backlog": 0, "durable": 5, "next": 5,
        "month": { "used": 1024, "of": null },
        "sources": [{ "kind": "signalk", "is_up": true, "down": null, "records": count * 10 }],
    })
}

fn shore(count: u64) -> Value {
    json!({
        "schema": "towline.link.show/1", "name": "shore", "role": "shore", "state": "live", "links": 1,
        "records": count * 10, "missed": 0,
        "senders": [{ "name": "boat", "via": "udp", "records": count * 10, "held": 0, "stale": 0 }],
        "sinks": [{ "kind": "nats", "is_log": true, "records": count * 10, "refused": 0, "trouble": null }],
    })
}

fn top(scratch: &Scratch, args: &[&str]) -> std::process::Command {
    let mut command = scratch.towline([&["top", "--interval", "200ms"], args].concat());
    command.env("XDG_RUNTIME_DIR", scratch.path(""));
    command
}

#[test]
fn once_prints_a_frame_of_each_link() {
    let scratch = Scratch::new();
    answer(&scratch, "boat", boat);
    answer(&scratch, "shore", shore);
    for args in [&["--once"][..], &[]] {
        let ended = Running::start(top(&scratch, args)).wait().expect(0, &[]);
        for said in [
            "[boat] shore",
            "boat  LIVE TLS",
            "quality  64",
            "B/delta 6.1",
            "round trip 612 ms (p95 700 ms)",
            "loss - ",
            "nothing waits",
            "5 of 5 records",
            "month    1.00 KiB",
            "boat [shore]",
            "shore  LISTENS  1 link",
            "boat    UDP ",
            "nats  log ",
        ] {
            assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
        }
        // 1000 bytes in 200 ms and what the machine was late.
        assert!(ended.stdout.contains("kB/s"), "{}", ended.stdout);
        assert!(!ended.stdout.contains('\x1b'), "{}", ended.stdout);
    }
    let socket = scratch.path("towline/link-shore.sock");
    let one = top(
        &scratch,
        &["--once", "--control", &socket.display().to_string()],
    );
    let ended = Running::start(one).wait().expect(0, &["shore  LISTENS"]);
    assert!(!ended.stdout.contains("[shore]"), "{}", ended.stdout);
}

#[test]
fn json_prints_each_report() {
    let scratch = Scratch::new();
    answer(&scratch, "boat", boat);
    answer(&scratch, "shore", shore);
    let ended = Running::start(top(&scratch, &["--once", "--json"]))
        .wait()
        .expect(0, &[]);
    let records: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records, [boat(0), shore(0)]);

    let mut command = top(&scratch, &["--json"]);
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut text = String::new();
    while text.lines().count() < 5 {
        let mut some = [0; 512];
        let read = out.read(&mut some).unwrap();
        assert!(read > 0, "{text}");
        text += std::str::from_utf8(&some[..read]).unwrap();
    }
    // Who has enough, such as `head`, goes.
    drop(out);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_link_that_is_down_or_not_there_is_code_3() {
    let scratch = Scratch::new();
    let ended = Running::start(top(&scratch, &["--once"])).wait();
    ended.expect(3, &["no link of this user runs"]);
    let ended = Running::start(top(&scratch, &["nobody", "--once"])).wait();
    ended.expect(3, &["link-nobody.sock"]);
    answer(&scratch, "boat", |count| {
        let mut report = boat(count);
        report["state"] = "down".into();
        report["why"] = "no answer for 30 s".into();
        report
    });
    let ended = Running::start(top(&scratch, &["boat", "--once"])).wait();
    ended.expect(3, &["boat  DOWN: no answer for 30 s"]);
    let ended = scratch.run(["top", "boat", "--interval", "1ms"]);
    ended.expect(2, &["too short"]);
}

/// What a program writes to a terminal of 80 columns and 24 lines, and how it ends after `keys`.
fn on_a_terminal(scratch: &Scratch, wanted: &'static str, keys: &[u8]) -> (Option<i32>, String) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).unwrap();
    let theirs = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let open = || {
        let mut options = OpenOptions::new();
        let flags = OFlags::NOCTTY.bits() as i32;
        options.read(true).write(true).custom_flags(flags);
        Stdio::from(options.open(&theirs).unwrap())
    };
    let mut command = top(scratch, &[]);
    let mut child = command
        .stdin(open())
        .stdout(open())
        .stderr(open())
        .spawn()
        .unwrap();
    // It keeps ends of the terminal open.
    drop(command);
    let mut ours = File::from(ours);
    let shown = Arc::new(Mutex::new(String::new()));
    let reading = thread::spawn({
        let (mut ours, shown) = (ours.try_clone().unwrap(), Arc::clone(&shown));
        move || {
            let mut some = [0; 4096];
            while let Ok(read @ 1..) = ours.read(&mut some) {
                let text = String::from_utf8_lossy(&some[..read]);
                shown.lock().unwrap().push_str(&text);
            }
        }
    });
    wait_until("the frame", || shown.lock().unwrap().contains(wanted));
    ours.write_all(keys).unwrap();
    wait_until("the end", || child.try_wait().unwrap().is_some());
    reading.join().unwrap();
    let shown = shown.lock().unwrap().clone();
    (child.wait().unwrap().code(), shown)
}

#[test]
fn a_terminal_is_given_back_however_it_ends() {
    let scratch = Scratch::new();
    answer(&scratch, "boat", boat);
    for (keys, code) in [(&b"q"[..], 0), (b"\x03", 130), (b"\tq", 0)] {
        let (ended, shown) = on_a_terminal(&scratch, "quits", keys);
        assert_eq!(ended, Some(code), "{shown}");
        let entered = shown.find("\x1b[?1049h").expect("the other screen");
        let left = shown.rfind("\x1b[?1049l").expect("is left again");
        assert!(entered < left, "{shown}");
    }
    let (_, shown) = on_a_terminal(&scratch, "signalk", b"q");
    assert!(shown.contains("LIVE"), "{shown}");
}
