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

use common::{Ended, Running, Scratch, Server, part_bytes, wait_until};
use rustix::process::Signal;

/// Data of one file that may be sent twice after an interruption.
const MAX_SENT_TWICE: u64 = 4 << 20;
const FILE: usize = 48 << 20;

fn number(record: &serde_json::Value, key: &str) -> u64 {
    record[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {record}"))
}

/// The system chooses the port.
const ANY_PORT: &str = "127.0.0.1:0";

/// A receiver at a free port.
fn receive_into(scratch: &Scratch, out: &Path, flags: &[&str]) -> Server {
    receive_at(ANY_PORT, scratch, out, flags)
}

fn receive_at(address: &str, scratch: &Scratch, out: &Path, flags: &[&str]) -> Server {
    let listen = ["recv", "--listen", address, "--out"];
    scratch.listen(listen.iter().chain(&[out.to_str().unwrap()]).chain(flags))
}

/// A server that takes files.
fn serve_into(scratch: &Scratch, out: &Path) -> Server {
    let address = scratch.address();
    let serve = ["serve", "--listen", &address, "--accept"];
    scratch.listen(serve.iter().chain(&[out.to_str().unwrap()]))
}

/// A sender.
fn sender(scratch: &Scratch, from: &Path, url: &str, flags: &[&str]) -> Command {
    let send = ["send", from.to_str().unwrap(), url];
    scratch.towline(send.iter().chain(flags))
}

/// A sender's whole run.
fn send(scratch: &Scratch, from: &Path, url: &str, flags: &[&str]) -> Ended {
    Running::start(sender(scratch, from, url, flags)).wait()
}

/// A transfer of which more than `bytes` have arrived.
fn until_arrived(bytes: u64, out: &Path, transfer: Command) -> Running {
    let transfer = Running::start(transfer);
    wait_until("some data", || part_bytes(out) > bytes);
    transfer
}

/// A sender of whose file some has arrived.
fn under_way(scratch: &Scratch, file: &Path, out: &Path, url: &str, flags: &[&str]) -> Running {
    let flags = [&["--limit", "20M"], flags].concat();
    until_arrived(5 << 20, out, sender(scratch, file, url, &flags))
}

/// A receiver that is started by a shell.
fn receive_by_shell(scratch: &Scratch, script: &str, out: &Path) -> Server {
    let receive = scratch.towline(["recv", "--listen", ANY_PORT, "--once", "--out"]);
    let mut shell = scratch.towline_at(Path::new("sh"), ["-c", script, "sh"]);
    shell.arg(receive.get_program()).args(receive.get_args());
    shell.arg(out);
    Server::start(shell)
}

fn assert_same(one: &Path, other: &Path) {
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
}

fn assert_same_folders(one: &Path, other: &Path) {
    let mut diff = Command::new("diff");
    let same = diff.arg("-r").arg(one).arg(other).status().unwrap();
    assert!(same.success());
}

/// Of a file that was sent in two sessions.
fn assert_little_sent_twice(first: &serde_json::Value, second: &serde_json::Value) {
    let moved = number(first, "bytes_moved") + number(second, "bytes_moved");
    assert!(moved <= FILE as u64 + MAX_SENT_TWICE, "{moved} bytes moved");
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
    let from = scratch.path("from");
    let sent = send(&scratch, &from, &receiver.url, &["--json"]).expect(0, &[]);
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
    assert_same_folders(&from, &out.join("from"));
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
        ANY_PORT,
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
    assert_same(
        &out.join("folder/sub/c"),
        &scratch.path("root/folder/sub/c"),
    );
    assert_eq!(fs::read(out.join("a b")).unwrap().len(), 5000);
    assert!(!out.join("other").exists());
    fetch("link").expect(1, &["no such file"]);
    fetch("missing").expect(1, &["no such file"]);
    send(&scratch, &scratch.path("secret"), &server.url, &[])
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
    let receiver = receive_by_shell(&scratch, "ulimit -n 256; exec \"$@\"", &out);
    // The manifest runs ahead of the data.
    let from = scratch.path("from");
    let sent = send(&scratch, &from, &receiver.url, &["--limit", "1M"]);
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
        let script = format!("umask {umask:04o}; exec \"$@\"");
        let receiver = receive_by_shell(&scratch, &script, &out);
        let sent = send(&scratch, &scratch.path("from"), &receiver.url, &[]);
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
    let first = receive_into(&scratch, &out, &["--once"]);
    send(&scratch, &from, &first.url, &[])
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

    let second = receive_into(&scratch, &out, &["--once", "--leave-out"]);
    send(&scratch, &from, &second.url, &["--leave-out"]).expect(0, &["2 left out", "from/plug"]);
    second.wait().expect(0, &[]);
    // What its link leads to.
    let third = receive_into(&scratch, &out, &["--once"]);
    fs::remove_file(from.join("plug")).unwrap();
    fs::remove_dir_all(&out).unwrap();
    send(&scratch, &from, &third.url, &["--follow-links"]).expect(0, &[]);
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
    let server = serve_into(&scratch, &out);
    for index in 0..3 {
        let file = scratch.write(&format!("file{index}"), 3 << 20);
        send(&scratch, &file, &server.url, &[]).expect(0, &[]);
        fs::remove_dir_all(out.join(".towline-part")).unwrap();
    }
    // The destination itself is made again as well.
    fs::remove_dir_all(&out).unwrap();
    send(&scratch, &scratch.path("file0"), &server.url, &[]).expect(0, &[]);
    assert!(out.join("file0").exists());
}

#[test]
fn a_second_transfer_of_the_same_files_moves_nothing() {
    let scratch = Scratch::new();
    let file = scratch.write("file", 3 << 20);
    let out = scratch.path("out");
    let server = serve_into(&scratch, &out);
    let place = server.url_of("deep/place");
    let sent = || send(&scratch, &file, &place, &["--json"]).expect(0, &[]);
    assert_eq!(number(&sent().record("towline.send/1"), "files"), 1);
    let again = sent().record("towline.send/1");
    assert_eq!(
        (number(&again, "skipped"), number(&again, "bytes_moved")),
        (1, 0)
    );
    assert_same(&out.join("deep/place/file"), &file);
}

#[test]
fn a_killed_sender_is_resumed_by_the_same_command() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let mut receiver = receive_into(&scratch, &out, &["--once"]);
    let killed = sender(&scratch, &file, &receiver.url, &["--limit", "30M"]);
    until_arrived(8 << 20, &out, killed).kill();
    assert!(
        !out.join("big").exists(),
        "a partial file must not look whole"
    );

    let sent = send(&scratch, &file, &receiver.url, &["--json"]).expect(0, &[]);
    let record = sent.record("towline.send/1");
    assert_eq!(number(&record, "resumed"), 1);
    // The receiver's view of the killed session, then of the whole one.
    let first = receiver.record("towline.recv/1");
    let second = receiver.wait().expect(0, &[]).record("towline.recv/1");
    assert_little_sent_twice(&first, &second);
    assert_same(&out.join("big"), &file);
}

#[test]
fn a_killed_receiver_ends_the_sender_with_code_6_and_is_resumed() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let listen = || receive_at(&scratch.address(), &scratch, &out, &["--once"]);
    let receiver = listen();
    let url = receiver.url.clone();
    let flags = ["--json", "--idle-timeout", "3s", "--retry", "0s"];
    let slow = [&flags[..], &["--limit", "30M"]].concat();
    let sender = until_arrived(8 << 20, &out, sender(&scratch, &file, &url, &slow));
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

    let receiver = listen();
    assert_eq!(
        receiver.url, url,
        "the certificate and its pin outlive the process"
    );
    let second = send(&scratch, &file, &url, &flags).expect(0, &[]);
    receiver.wait().expect(0, &[]);
    let (first, second) = (
        first.record("towline.send/1"),
        second.record("towline.send/1"),
    );
    assert_eq!(number(&second, "resumed"), 1);
    assert_little_sent_twice(&first, &second);
    assert_same(&out.join("big"), &file);
}

#[test]
fn a_sender_goes_on_by_itself_when_a_killed_receiver_is_back() {
    let scratch = Scratch::new();
    let small = scratch.write("from/a-small", 1000);
    let file = scratch.write("from/big", FILE);
    let out = scratch.path("out");
    let listen = || receive_at(&scratch.address(), &scratch, &out, &["--once"]);
    let receiver = listen();
    let url = receiver.url.clone();
    // Longer than any program of these tests may run: it is the receiver that ends the connection.
    let flags = ["--json", "--idle-timeout", "300s", "--limit", "30M"];
    let sender = sender(&scratch, &scratch.path("from"), &url, &flags);
    let sender = until_arrived(8 << 20, &out, sender);
    receiver.kill();
    let receiver = listen();
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
        assert_same(&out.join("from").join(name), from);
    }
}

#[test]
fn a_receiver_that_does_not_come_back_is_given_up() {
    let scratch = Scratch::new();
    let file = scratch.write("big", FILE);
    let out = scratch.path("out");
    let server = serve_into(&scratch, &out);
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
    let receiver = receive_at(&scratch.address(), &scratch, &out, &[]);
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
    let root = scratch.path("root");
    let address = scratch.address();
    let serve = || {
        let serve = ["serve", "--listen", &address, "--limit", "30M", "--root"];
        scratch.listen(serve.iter().chain(&[root.to_str().unwrap()]))
    };
    let server = serve();
    let url = server.url_of("big");
    let fetch = ["recv", &url, "--json", "--idle-timeout", "300s", "--out"];
    let fetch = scratch.towline(fetch.iter().chain(&[out.to_str().unwrap()]));
    let receiver = until_arrived(8 << 20, &out, fetch);
    server.kill();
    let _server = serve();
    let received = receiver.wait().expect(0, &["connecting again"]);
    let record = received.record("towline.recv/1");
    assert_eq!(
        (number(&record, "files"), number(&record, "resumed")),
        (1, 1)
    );
    assert_same(&out.join("big"), &file);
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
        ANY_PORT,
        &receiver.address,
        "--both",
        "delay=5ms,blackout=1500ms+5s",
    ]);
    let url = receiver.url_through(&relay);
    let sent = send(&scratch, &file, &url, &["--limit", "10M"]).expect(0, &[]);
    assert!(
        sent.took > Duration::from_secs(7),
        "the blackout missed the transfer: {:?}",
        sent.took
    );
    receiver.wait().expect(0, &[]);
    assert_same(&out.join("big"), &file);
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
        ANY_PORT,
        &receiver.address,
        "--both",
        spec,
        "--seed",
        "7",
    ]);
    let from = scratch.path("from");
    send(&scratch, &from, &receiver.url_through(&relay), &[]).expect(0, &[]);
    receiver.wait().expect(0, &[]);
    assert_same_folders(&from, &out.join("from"));
}

#[test]
fn a_wrong_pin_ends_with_code_4_and_says_what_was_presented() {
    let scratch = Scratch::new();
    let server = scratch.listen(["serve", "--listen", ANY_PORT]);
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
    let server = scratch.listen(["serve", "--listen", ANY_PORT]);
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
    send(&scratch, &file, &receiver.url, &[]).expect(0, &["resumed"]);
    receiver.wait().expect(0, &[]);
    assert_same(&out.join("big"), &file);
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let scratch = Scratch::new();
    let mut server = scratch.listen(["serve", "--listen", ANY_PORT]);
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
    assert!(!sent.stderr.contains("connecting again"), "{sent:?}");
    assert!(part_bytes(&out) > 5 << 20, "what arrived is kept");
}

#[test]
fn a_server_that_is_interrupted_ends_a_fetch() {
    let scratch = Scratch::new();
    let root = scratch.path("root");
    scratch.write("root/big", FILE);
    let out = scratch.path("out");
    let serve = ["serve", "--listen", ANY_PORT, "--limit", "20M", "--root"];
    let server = scratch.listen(serve.iter().chain(&[root.to_str().unwrap()]));
    let fetch = [
        "recv",
        &server.url_of("big"),
        "--out",
        out.to_str().unwrap(),
    ];
    let fetch = until_arrived(5 << 20, &out, scratch.towline(fetch));
    server.signal(Signal::INT);
    server.wait().expect(130, &[]);
    let fetched = fetch
        .wait()
        .expect(7, &["interrupted", "run the same command again to resume"]);
    assert!(!fetched.stderr.contains("connecting again"), "{fetched:?}");
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
    let slow = sender(&scratch, &from, &receiver.url, &["--limit", "20M"]);
    let sender = until_arrived(2 << 20, &out, slow);
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
    let mut send = sender(&scratch, &from, &receiver.url, &[]);
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
    let receiver = receive_into(&scratch, &small, &[]);
    let at_once = send(&scratch, &huge, &receiver.url, &[]);
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
    let server = serve_into(&scratch, &out);
    let send = |index: usize| {
        let file = scratch.write(&format!("file{index}"), 900_000);
        sender(&scratch, &file, &server.url, &["--limit", "1k"])
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
    let ended = send(&scratch, Path::new("/nowhere/at/all"), &url, &[])
        .expect(1, &["/nowhere/at/all", "next:"]);
    assert!(ended.took < Duration::from_secs(5));
}
