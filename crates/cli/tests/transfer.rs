//! `send`, `recv` and `serve` as real programs over loopback.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Running, Scratch, Server, part_bytes, wait_until};
use rustix::process::Signal;

/// Data of one file that may be sent twice after an interruption.
const MAX_SENT_TWICE: u64 = 4 << 20;
const FILE: usize = 48 << 20;

fn number(record: &serde_json::Value, key: &str) -> u64 {
    record[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {record}"))
}

/// A receiver at a free port.
fn receive_into(scratch: &Scratch, out: &Path, flags: &[&str]) -> Server {
    let listen = ["recv", "--listen", "127.0.0.1:0", "--out"];
    scratch.listen(listen.iter().chain(&[out.to_str().unwrap()]).chain(flags))
}

/// A sender of whose file some has arrived.
fn under_way(scratch: &Scratch, file: &Path, out: &Path, url: &str, flags: &[&str]) -> Running {
    let send = ["send", file.to_str().unwrap(), url, "--limit", "20M"];
    let sender = Running::start(scratch.towline(send.iter().chain(flags)));
    wait_until("some data", || part_bytes(out) > 5 << 20);
    sender
}

#[test]
fn a_folder_goes_to_a_receiver_that_leaves_after_it() {
    let scratch = Scratch::new();
    for index in 0..500 {
        scratch.write(&format!("from/small/{}/{index}", index % 7), index * 13);
    }
    scratch.write("from/large", 20 << 20);
    let out = scratch.path("to");
    let receiver = receive_into(&scratch, &out, &["--once"]);
    let sent = scratch
        .run([
            "send",
            scratch.path("from").to_str().unwrap(),
            &receiver.url,
            "--json",
        ])
        .expect(0, &[]);
    let record = sent.record("towline.send/1");
    assert_eq!(record["whole"], true);
    assert_eq!(number(&record, "files"), 501);
    assert!(
        record["peer_cpu_seconds"]
            .as_f64()
            .is_some_and(|cpu| cpu > 0.0)
    );
    let received = receiver.wait().expect(0, &[]).record("towline.recv/1");
    assert_eq!(number(&received, "files"), 501);
    assert!(
        received["peer_cpu_seconds"]
            .as_f64()
            .is_some_and(|cpu| cpu > 0.0),
        "{received}"
    );
    let same = Command::new("diff")
        .arg("-r")
        .arg(scratch.path("from"))
        .arg(out.join("from"))
        .status()
        .unwrap();
    assert!(same.success());
    assert!(!out.join(".towline-part").exists());
}

#[test]
fn files_are_fetched_from_a_server_and_nothing_outside_of_its_folder() {
    let scratch = Scratch::new();
    scratch.write("root/folder/a b", 5000);
    scratch.write("root/folder/sub/c", 3 << 20);
    scratch.write("root/other", 10);
    scratch.write("secret", 10);
    std::os::unix::fs::symlink(scratch.path("secret"), scratch.path("root/link")).unwrap();
    let server = scratch.listen([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--root",
        scratch.path("root").to_str().unwrap(),
    ]);
    let out = scratch.path("out");
    let fetch = |path: &str| {
        scratch.run([
            "recv",
            &server.url_of(path),
            "--out",
            out.to_str().unwrap(),
            "--json",
        ])
    };
    fetch("folder").expect(0, &[]);
    fetch("folder/a%20b").expect(0, &[]);
    assert_eq!(
        fs::read(out.join("folder/sub/c")).unwrap(),
        fs::read(scratch.path("root/folder/sub/c")).unwrap()
    );
    assert_eq!(fs::read(out.join("a b")).unwrap().len(), 5000);
    assert!(!out.join("other").exists());
    fetch("link").expect(1, &["no such file"]);
    fetch("missing").expect(1, &["no such file"]);
    scratch
        .run([
            "send",
            scratch.path("secret").to_str().unwrap(),
            &server.url,
        ])
        .expect(1, &["does not receive files", "--accept"]);
}

#[test]
fn two_thousand_folders_arrive_where_few_descriptors_may_be_open() {
    const FOLDERS: usize = 2000;
    let scratch = Scratch::new();
    for index in 0..FOLDERS {
        scratch.write(&format!("from/{index}/file"), 2000);
    }
    let out = scratch.path("to");
    let program = "ulimit -n 256; exec \"$@\"";
    let receive = scratch.towline(["recv", "--listen", "127.0.0.1:0", "--once", "--out"]);
    let mut shell = scratch.towline_at(Path::new("sh"), ["-c", program, "sh"]);
    shell.arg(receive.get_program()).args(receive.get_args());
    shell.arg(&out);
    let receiver = Server::start(shell);
    // The manifest runs ahead of the data.
    let from = scratch.path("from");
    let sent = scratch.run([
        "send",
        from.to_str().unwrap(),
        &receiver.url,
        "--limit",
        "1M",
    ]);
    let failed = sent.stdout.matches("Too many open files").count();
    eprintln!(
        "{FOLDERS} folders with 256 descriptors: code {:?}, {failed} named failures for want of one",
        sent.code
    );
    sent.expect(0, &[]);
    let received = receiver.wait().expect(0, &[]).record("towline.recv/1");
    assert_eq!(number(&received, "files"), FOLDERS as u64);
}

/// The table of modes: what the source has, the receiver's umask, what arrives.
#[test]
fn modes_arrive_under_the_receivers_umask_and_never_wider() {
    use std::os::unix::fs::PermissionsExt;
    const MODES: [u32; 14] = [
        0o000, 0o400, 0o600, 0o640, 0o644, 0o666, 0o700, 0o750, 0o755, 0o777, 0o2755, 0o4755,
        0o6711, 0o1644,
    ];
    let scratch = Scratch::new();
    let mode_of = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    for mode in MODES {
        let file = scratch.write(&format!("from/{mode:04o}"), 1000);
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let folder = scratch.path(&format!("from/folder-{mode:04o}"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    let is_root = fs::read(scratch.path("from/0000")).is_ok();
    eprintln!("| source | umask | file arrives | folder arrives |\n|---|---|---|---|");
    for umask in [0o000, 0o002, 0o022, 0o027, 0o077] {
        let out = scratch.path(&format!("to-{umask:03o}"));
        let program = format!("umask {umask:04o}; exec \"$@\"");
        let receive = scratch.towline(["recv", "--listen", "127.0.0.1:0", "--once"]);
        let mut shell = scratch.towline_at(Path::new("sh"), ["-c", &program, "sh"]);
        shell.arg(receive.get_program()).args(receive.get_args());
        shell.arg("--out").arg(&out);
        let receiver = Server::start(shell);
        let sent = scratch.run([
            "send",
            scratch.path("from").to_str().unwrap(),
            &receiver.url,
        ]);
        // Other users cannot read what has no mode for them: it fails, and the rest arrives.
        sent.expect(if is_root { 0 } else { 7 }, &[]);
        for mode in MODES {
            let expected = mode & 0o777 & !umask;
            let file = out.join(format!("from/{mode:04o}"));
            let folder = out.join(format!("from/folder-{mode:04o}"));
            if !is_root && (mode & 0o400 == 0 || mode & 0o500 != 0o500) {
                continue;
            }
            eprintln!(
                "| {mode:04o} | {umask:03o} | {:04o} | {:04o} |",
                mode_of(&file),
                mode_of(&folder)
            );
            assert_eq!(mode_of(&file), expected, "{mode:o} under {umask:o}");
            assert_eq!(mode_of(&folder), expected, "{mode:o} under {umask:o}");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
    for mode in MODES {
        let folder = scratch.path(&format!("from/folder-{mode:04o}"));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn what_cannot_be_sent_is_named_and_no_success_unless_asked_for() {
    let scratch = Scratch::new();
    scratch.write("from/file", 1000);
    std::os::unix::fs::symlink("/etc/hostname", scratch.path("from/link")).unwrap();
    std::os::unix::fs::symlink("file", scratch.path("from/inside")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scratch.path("from/plug")).unwrap();
    let out = scratch.path("out");
    let from = scratch.path("from");
    let receiver = |extra: &[&str]| {
        let listen = ["recv", "--listen", "127.0.0.1:0", "--once", "--out"];
        let out = [out.to_str().unwrap()];
        scratch.listen(listen.iter().chain(&out).chain(extra))
    };
    let first = receiver(&[]);
    scratch
        .run(["send", from.to_str().unwrap(), &first.url])
        .expect(7, &["2 left out", "from/link", "from/plug", "--leave-out"]);
    let ended = first.wait().expect(7, &["2 left out"]);
    let names = ended.record("towline.recv/1")["left_out_names"].to_string();
    assert!(
        names.contains("from/link") && names.contains("from/plug"),
        "{names}"
    );
    assert_eq!(
        fs::read_link(out.join("from/inside")).unwrap(),
        Path::new("file")
    );

    let second = receiver(&["--leave-out"]);
    scratch
        .run(["send", from.to_str().unwrap(), &second.url, "--leave-out"])
        .expect(0, &["2 left out", "from/plug"]);
    second.wait().expect(0, &[]);
    // What its link leads to.
    let third = receiver(&[]);
    fs::remove_file(from.join("plug")).unwrap();
    fs::remove_dir_all(&out).unwrap();
    scratch
        .run(["send", from.to_str().unwrap(), &third.url, "--follow-links"])
        .expect(0, &[]);
    assert!(
        fs::symlink_metadata(out.join("from/link"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn the_folder_of_unfinished_files_may_be_removed_under_a_running_server() {
    let scratch = Scratch::new();
    let out = scratch.path("out");
    let server = scratch.listen([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--accept",
        out.to_str().unwrap(),
    ]);
    for index in 0..3 {
        let file = scratch.write(&format!("file{index}"), 3 << 20);
        scratch
            .run(["send", file.to_str().unwrap(), &server.url])
            .expect(0, &[]);
        fs::remove_dir_all(out.join(".towline-part")).unwrap();
    }
    // The destination itself is made again as well.
    fs::remove_dir_all(&out).unwrap();
    let file = scratch.path("file0");
    scratch
        .run(["send", file.to_str().unwrap(), &server.url])
        .expect(0, &[]);
    assert!(out.join("file0").exists());
}

#[test]
fn a_second_transfer_of_the_same_files_moves_nothing() {
    let scratch = Scratch::new();
    let file = scratch.write("file", 3 << 20);
    let out = scratch.path("out");
    let server = scratch.listen([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--accept",
        out.to_str().unwrap(),
    ]);
    let send = || {
        scratch
            .run([
                "send",
                file.to_str().unwrap(),
                &server.url_of("deep/place"),
                "--json",
            ])
            .expect(0, &[])
    };
    assert_eq!(number(&send().record("towline.send/1"), "files"), 1);
    let again = send().record("towline.send/1");
    assert_eq!(
        (number(&again, "skipped"), number(&again, "bytes_moved")),
        (1, 0)
    );
    assert_eq!(
        fs::read(out.join("deep/place/file")).unwrap(),
        fs::read(&file).unwrap()
    );
}

#[test]
fn a_killed_sender_is_resumed_by_the_same_command() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let mut receiver = receive_into(&scratch, &out, &["--once"]);
    let sender = Running::start(scratch.towline([
        "send",
        file.to_str().unwrap(),
        &receiver.url,
        "--limit",
        "30M",
    ]));
    wait_until("some data", || part_bytes(&out) > 8 << 20);
    sender.kill();
    assert!(
        !out.join("big").exists(),
        "a partial file must not look whole"
    );

    let sent = scratch
        .run(["send", file.to_str().unwrap(), &receiver.url, "--json"])
        .expect(0, &[]);
    let record = sent.record("towline.send/1");
    assert_eq!(number(&record, "resumed"), 1);
    // The receiver's view of the killed session, then of the whole one.
    let first = receiver.record("towline.recv/1");
    let second = receiver.wait().expect(0, &[]).record("towline.recv/1");
    let moved = number(&first, "bytes_moved") + number(&second, "bytes_moved");
    assert!(moved <= FILE as u64 + MAX_SENT_TWICE, "{moved} bytes moved");
    assert_eq!(fs::read(out.join("big")).unwrap(), fs::read(&file).unwrap());
}

#[test]
fn a_killed_receiver_ends_the_sender_with_code_6_and_is_resumed() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let listen = |address: &str| {
        scratch.listen([
            "recv",
            "--listen",
            address,
            "--out",
            out.to_str().unwrap(),
            "--once",
        ])
    };
    let receiver = listen("127.0.0.1:0");
    let (address, url) = (receiver.address.clone(), receiver.url.clone());
    let send = [
        "send",
        file.to_str().unwrap(),
        &url,
        "--json",
        "--idle-timeout",
        "3s",
        "--retry",
        "0s",
    ];
    let sender = Running::start(scratch.towline(send.iter().chain(&["--limit", "30M"])));
    wait_until("some data", || part_bytes(&out) > 8 << 20);
    receiver.kill();
    let killed_at = std::time::Instant::now();
    let first = sender
        .wait()
        .expect(6, &["run the same command again to resume"]);
    assert!(
        killed_at.elapsed() < Duration::from_secs(6),
        "the sender took {:?}",
        killed_at.elapsed()
    );

    let receiver = listen(&address);
    assert_eq!(
        receiver.url, url,
        "the certificate and its pin outlive the process"
    );
    let second = scratch.run(send).expect(0, &[]);
    receiver.wait().expect(0, &[]);
    let (first, second) = (
        first.record("towline.send/1"),
        second.record("towline.send/1"),
    );
    assert_eq!(number(&second, "resumed"), 1);
    let moved = number(&first, "bytes_moved") + number(&second, "bytes_moved");
    assert!(moved <= FILE as u64 + MAX_SENT_TWICE, "{moved} bytes moved");
    assert_eq!(fs::read(out.join("big")).unwrap(), fs::read(&file).unwrap());
}

#[test]
fn a_sender_goes_on_by_itself_when_a_killed_receiver_is_back() {
    let scratch = Scratch::new();
    let small = scratch.write("from/a-small", 1000);
    let file = scratch.write("from/big", FILE);
    let out = scratch.path("out");
    let listen = |address: &str| {
        let listen = ["recv", "--listen", address, "--once", "--out"];
        scratch.listen(listen.iter().chain(&[out.to_str().unwrap()]))
    };
    let receiver = listen("127.0.0.1:0");
    let (address, url) = (receiver.address.clone(), receiver.url.clone());
    receiver.kill();
    let receiver = listen(&address);
    // Longer than any program of these tests may run: it is the receiver that ends the connection.
    let sender = Running::start(scratch.towline([
        "send",
        scratch.path("from").to_str().unwrap(),
        &url,
        "--json",
        "--idle-timeout",
        "300s",
        "--limit",
        "30M",
    ]));
    wait_until("some data", || part_bytes(&out) > 8 << 20);
    receiver.kill();
    let receiver = listen(&address);
    let sent = sender.wait().expect(0, &["connecting again"]);
    let record = sent.record("towline.send/1");
    assert_eq!(number(&record, "resumed"), 1);
    assert_eq!(
        (number(&record, "files"), number(&record, "skipped")),
        (2, 0)
    );
    let moved = number(&record, "bytes_moved");
    assert!(
        moved <= FILE as u64 + 1000 + MAX_SENT_TWICE,
        "{moved} bytes moved"
    );
    // All of it in all of the time: no faster than it was allowed to be.
    let speed = record["bytes_per_second"].as_f64().unwrap();
    assert!(speed < 33e6, "{speed} bytes a second");
    receiver.wait().expect(0, &[]);
    for (from, name) in [(&small, "a-small"), (&file, "big")] {
        let there = out.join("from").join(name);
        assert_eq!(fs::read(there).unwrap(), fs::read(from).unwrap());
    }
}

#[test]
fn a_receiver_that_does_not_come_back_is_given_up() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let server = scratch.listen([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--accept",
        out.to_str().unwrap(),
    ]);
    let times = ["--idle-timeout", "1s", "--retry", "1s"];
    let sender = under_way(&scratch, &file, &out, &server.url, &times);
    server.kill();
    sender.wait().expect(
        6,
        &["connecting again", "run the same command again to resume"],
    );
}

#[test]
fn ctrl_c_while_connecting_again_is_an_interruption_that_can_be_resumed() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let receiver = receive_into(&scratch, &out, &[]);
    let sender = under_way(
        &scratch,
        &file,
        &out,
        &receiver.url,
        &["--idle-timeout", "1s"],
    );
    receiver.kill();
    // Past the silence, in the middle of the tries to connect.
    std::thread::sleep(Duration::from_secs(4));
    sender.signal(Signal::INT);
    let ended = sender.wait().expect(
        130,
        &[
            "connecting again",
            "interrupted",
            "run the same command again to resume",
        ],
    );
    assert!(
        !ended.stderr.contains("before anything was sent"),
        "{ended:?}"
    );
}

#[test]
fn a_fetch_goes_on_by_itself_when_a_killed_server_is_back() {
    let scratch = Scratch::new();
    let file = scratch.write("root/big", FILE);
    let out = scratch.path("out");
    let serve = |address: &str| {
        let serve = ["serve", "--listen", address, "--limit", "30M", "--root"];
        scratch.listen(
            serve
                .iter()
                .chain(&[scratch.path("root").to_str().unwrap()]),
        )
    };
    let server = serve("127.0.0.1:0");
    let (address, url) = (server.address.clone(), server.url_of("big"));
    server.kill();
    let server = serve(&address);
    let receiver = Running::start(scratch.towline([
        "recv",
        &url,
        "--out",
        out.to_str().unwrap(),
        "--json",
        "--idle-timeout",
        "300s",
    ]));
    wait_until("some data", || part_bytes(&out) > 8 << 20);
    server.kill();
    let _server = serve(&address);
    let received = receiver.wait().expect(0, &["connecting again"]);
    let record = received.record("towline.recv/1");
    assert_eq!(
        (number(&record, "files"), number(&record, "resumed")),
        (1, 1)
    );
    assert_eq!(fs::read(out.join("big")).unwrap(), fs::read(&file).unwrap());
    assert!(!out.join(".towline-part").exists());
}

#[test]
fn a_blackout_of_five_seconds_needs_no_user() {
    let scratch = Scratch::new();
    let file = scratch.write("big", 32 << 20);
    let out = scratch.path("out");
    let receiver = receive_into(&scratch, &out, &["--once"]);
    let relay = scratch.listen([
        "relay",
        "127.0.0.1:0",
        &receiver.address,
        "--both",
        "delay=5ms,blackout=1500ms+5s",
    ]);
    let sent = scratch
        .run([
            "send",
            file.to_str().unwrap(),
            &receiver.url_through(&relay),
            "--limit",
            "10M",
        ])
        .expect(0, &[]);
    assert!(
        sent.took > Duration::from_secs(7),
        "the blackout missed the transfer: {:?}",
        sent.took
    );
    receiver.wait().expect(0, &[]);
    assert_eq!(fs::read(out.join("big")).unwrap(), fs::read(&file).unwrap());
    relay.signal(Signal::INT);
    let relayed = relay.wait().expect(130, &[]).record("towline.relay/1");
    assert!(number(&relayed["up"]["drops"], "blackout") > 0, "{relayed}");
}

#[test]
fn a_transfer_over_a_bad_network_arrives_whole() {
    let scratch = Scratch::new();
    for index in 0..50 {
        scratch.write(&format!("from/{index}"), 100_000);
    }
    let out = scratch.path("out");
    let receiver = receive_into(&scratch, &out, &["--once"]);
    let spec = "delay=5ms,jitter=1ms,loss=2%,reorder=1%,dup=1%,corrupt=0.5%";
    let relay = scratch.listen([
        "relay",
        "127.0.0.1:0",
        &receiver.address,
        "--both",
        spec,
        "--seed",
        "7",
    ]);
    let from = scratch.path("from");
    scratch
        .run([
            "send",
            from.to_str().unwrap(),
            &receiver.url_through(&relay),
        ])
        .expect(0, &[]);
    receiver.wait().expect(0, &[]);
    assert!(
        Command::new("diff")
            .arg("-r")
            .arg(&from)
            .arg(out.join("from"))
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_wrong_pin_ends_with_code_4_and_says_what_was_presented() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let pin = server.url.rsplit_once('#').unwrap().1;
    let wrong = server
        .url
        .replace(pin, &format!("sha256/{}", "ab".repeat(32)));
    scratch
        .run(["echo", &wrong, "-c", "1"])
        .expect(4, &[pin, "next:"]);
    let no_pin = server.url.split_once('#').unwrap().0;
    scratch
        .run(["echo", no_pin, "-c", "1"])
        .expect(4, &["this URL has no pin", "paste the whole line"]);
    scratch
        .run(["echo", no_pin, "-c", "1", "--pin", pin])
        .expect(0, &[]);
    scratch
        .run(["echo", no_pin, "-c", "1", "--insecure"])
        .expect(0, &["WARNING"]);
}

#[test]
fn a_port_in_use_is_named_with_the_way_out() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let address = server.address.as_str();
    for command in [
        &["serve", "--listen", address][..],
        &[
            "recv",
            "--listen",
            address,
            "--out",
            scratch.path("out").to_str().unwrap(),
        ],
        &["perf", "server", "--listen", address],
        &["relay", address, "127.0.0.1:1"],
    ] {
        scratch.run(command).expect(1, &["in use", "next:"]);
    }
    assert!(!scratch.path("out").exists());
}

#[test]
fn nobody_at_the_address_ends_with_code_3() {
    let scratch = Scratch::new();
    let url = format!("towline://127.0.0.1:1/#sha256/{}", "ab".repeat(32));
    let refused = scratch
        .run(["echo", &url, "-c", "1"])
        .expect(3, &["no answer", "nothing listens", "next:"]);
    assert!(refused.took < Duration::from_secs(3), "{:?}", refused.took);
    scratch
        .run([
            "echo",
            &url.replace("127.0.0.1", "no-such-host.invalid"),
            "-c",
            "1",
        ])
        .expect(3, &["no-such-host.invalid"]);
}

#[test]
fn ctrl_c_ends_with_130_and_the_rest_is_resumed() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let receiver = receive_into(&scratch, &out, &["--once"]);
    let sender = under_way(&scratch, &file, &out, &receiver.url, &[]);
    sender.signal(Signal::INT);
    sender
        .wait()
        .expect(130, &["run the same command again to resume"]);
    scratch
        .run(["send", file.to_str().unwrap(), &receiver.url])
        .expect(0, &["resumed"]);
    receiver.wait().expect(0, &[]);
    assert_eq!(fs::read(out.join("big")).unwrap(), fs::read(&file).unwrap());
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let scratch = Scratch::new();
    let mut server = scratch.listen(["serve", "--listen", "127.0.0.1:0"]);
    let client = Running::start(scratch.towline(["echo", &server.url, "-i", "10s"]));
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::STOP);
    let asked = std::time::Instant::now();
    client.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    client.signal(Signal::INT);
    client.wait().expect(130, &[]);
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    server.signal(Signal::CONT);
    server.signal(Signal::INT);
    server.url.clear();
    server.wait().expect(130, &[]);
}

#[test]
fn a_receiver_that_is_interrupted_tells_the_sender() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let receiver = receive_into(&scratch, &out, &[]);
    let sender = under_way(&scratch, &file, &out, &receiver.url, &[]);
    receiver.signal(Signal::INT);
    receiver.wait().expect(130, &[]);
    let sent = sender
        .wait()
        .expect(7, &["interrupted", "run the same command again to resume"]);
    assert!(sent.took < Duration::from_secs(10));
    assert!(part_bytes(&out) > 5 << 20, "what arrived is kept");
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_not_passed_off_as_whole() {
    let scratch = Scratch::new();
    let file = scratch.write("from/log", 20 << 20);
    scratch.write("from/other", 1000);
    let out = scratch.path("out");
    let receiver = receive_into(&scratch, &out, &["--once"]);
    let from = scratch.path("from");
    let sender = Running::start(scratch.towline([
        "send",
        from.to_str().unwrap(),
        &receiver.url,
        "--limit",
        "20M",
    ]));
    wait_until("some data", || part_bytes(&out) > 2 << 20);
    fs::File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .write_all(b"one more line\n")
        .unwrap();
    sender
        .wait()
        .expect(7, &["log", "changed while it was sent"]);
    receiver.wait().expect(7, &[]);
    assert!(!out.join("from/log").exists());
    assert!(out.join("from/other").exists());
    assert!(
        !out.join(".towline-part").exists(),
        "the mixture is thrown away"
    );
}

#[test]
fn an_unreadable_file_fails_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    scratch.write("from/good", 1000);
    let secret = scratch.write("from/secret", 1000);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let out = scratch.path("out");
    let receiver = receive_into(&scratch, &out, &["--once"]);
    let from = scratch.path("from");
    let mut send = scratch.towline(["send", from.to_str().unwrap(), &receiver.url]);
    if fs::File::open(&secret).is_ok() {
        // Root reads everything, so the sender runs as somebody else, from where he can see it.
        use std::os::unix::process::CommandExt;
        let program = scratch.path("towline");
        fs::copy(send.get_program(), &program).unwrap();
        for path in [&program, &scratch.path(""), &from] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        send = scratch.towline_at(&program, ["send", from.to_str().unwrap(), &receiver.url]);
        send.uid(65_534).gid(65_534).current_dir("/");
    }
    Running::start(send)
        .wait()
        .expect(7, &["secret", "cannot be read"]);
    assert!(out.join("from/good").exists());
}

#[test]
fn a_full_disk_is_told_at_both_ends() {
    let scratch = Scratch::new();
    let small = scratch.path("small-disk");
    fs::create_dir_all(&small).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&small)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    // Many files, each of which fits: the disk fills up in the middle of one.
    for index in 0..20 {
        scratch.write(&format!("from/{index:02}"), 900_000);
    }
    let huge = scratch.write("huge", 8 << 20);
    let receiver = scratch.listen([
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--out",
        small.to_str().unwrap(),
    ]);
    let at_once = scratch.run(["send", huge.to_str().unwrap(), &receiver.url]);
    let mut send = scratch.towline(["send", "from", &receiver.url]);
    send.current_dir(scratch.path(""));
    let midway = Running::start(send).wait();
    receiver.kill();
    let unmounted = Command::new("umount")
        .arg("-l")
        .arg(&small)
        .status()
        .unwrap();
    assert!(unmounted.success());
    at_once.expect(7, &["bytes are free", "run the same command again"]);
    let midway = midway.expect(7, &["No space left", "free some space"]);
    let told = [midway.stdout, midway.stderr].concat();
    let place = scratch.path("");
    assert!(!told.contains(place.to_str().unwrap()), "{told}");
}

#[test]
fn a_server_takes_thirty_two_transfers_at_once_and_refuses_the_next() {
    const MAX_SESSIONS: usize = 32;
    let scratch = Scratch::new();
    let out = scratch.path("out");
    let server = scratch.listen([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--accept",
        out.to_str().unwrap(),
    ]);
    let send = |index: usize| {
        let file = scratch.write(&format!("file{index}"), 900_000);
        scratch.towline(["send", file.to_str().unwrap(), &server.url, "--limit", "1k"])
    };
    let slow: Vec<_> = (0..MAX_SESSIONS)
        .map(|index| Running::start(send(index)))
        .collect();
    let parts = || fs::read_dir(out.join(".towline-part")).map_or(0, Iterator::count);
    wait_until("all transfers to begin", || parts() >= MAX_SESSIONS);
    Running::start(send(MAX_SESSIONS))
        .wait()
        .expect(1, &["too many transfers", "try again later"]);
    drop(slow);
}

#[test]
fn a_path_that_is_missing_is_told_before_anything_is_sent() {
    let scratch = Scratch::new();
    let url = format!("towline://127.0.0.1:1/#sha256/{}", "ab".repeat(32));
    let ended = scratch
        .run(["send", "/nowhere/at/all", &url])
        .expect(1, &["/nowhere/at/all", "next:"]);
    assert!(ended.took < Duration::from_secs(5));
}
