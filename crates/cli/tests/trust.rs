//! Who believes whom: saved URLs, clients that a server knows, raw keys.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, Running, Scratch, Server, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// A second wall clock for programs: `CLOCK_REALTIME` is the system's, moved by the seconds in a
/// file, which may change while the program runs. Other clocks stay as they are.
const MOVED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, id, time);
    const char *path = getenv("MOVED_BY");
    long seconds = 0;
    if (result == 0 && id == CLOCK_REALTIME && path != NULL) {
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            if (fscanf(file, "%ld", &seconds) == 1) time->tv_sec += seconds;
            fclose(file);
        }
    }
    return result;
}
"#;

const DAY: u64 = 86_400;

/// Programs whose clock can be moved.
struct Times {
    scratch: Scratch,
    library: PathBuf,
}

impl Times {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (source, library) = (scratch.path("clock.c"), scratch.path("clock.so"));
        fs::write(&source, MOVED_CLOCK).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(built.success());
        let times = Self { scratch, library };
        times.move_by(0);
        times
    }

    fn move_by(&self, days: u64) {
        fs::write(self.scratch.path("moved-by"), (days * DAY).to_string()).unwrap();
    }

    fn towline(&self, args: &[&str]) -> Command {
        let mut command = self.scratch.towline(args);
        command
            .env("LD_PRELOAD", &self.library)
            .env("MOVED_BY", self.scratch.path("moved-by"));
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        Running::start(self.towline(args)).wait()
    }
}

#[test]
fn a_saved_url_works_after_thirty_days_and_after_two_years() {
    let times = Times::new();
    let address = times.scratch.address();
    let serve = || Server::start(times.towline(&["serve", "--listen", &address]));
    let certificate = || {
        let shown = times.run(&["cert", "show", "--json"]).expect(0, &[]);
        shown.record("towline.cert/2")
    };
    let server = serve();
    let saved = server.url.clone();
    let echo = || times.run(&["echo", &saved, "-c", "1"]);
    echo().expect(0, &[]);
    let first = certificate();
    // The running server, whose certificate of the start ended long ago. It looks at the clock every second.
    for days in [10, 30, 730] {
        times.move_by(days);
        wait_until("a certificate of today", || echo().code == Some(0));
    }
    // A restart, and one after a further month without a server.
    drop(server);
    times.move_by(760);
    let server = serve();
    assert_eq!(server.url, saved);
    echo().expect(0, &[]);
    let last = certificate();
    assert_eq!(last["pin"], first["pin"]);
    assert_ne!(last["certificate_pin"], first["certificate_pin"]);
    let seconds = |record: &Value, key: &str| record[key].as_u64().unwrap();
    for record in [&first, &last] {
        let lifetime = seconds(record, "expires") - seconds(record, "begins");
        assert!(lifetime <= 14 * DAY, "browsers take no longer ones");
    }
}

/// The certificates of `cert rotate`, and whether the next one was made by it.
fn rotated(times: &Times, flags: &[&str]) -> (String, String, bool) {
    let args = [&["cert", "rotate", "--json"][..], flags].concat();
    let record = times
        .run(&args)
        .expect(0, &[])
        .record("towline.cert.rotate/1");
    let pin = |which: &str| {
        record[which]["certificate_pin"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let seconds = |which: &str, what: &str| record[which][what].as_u64().unwrap();
    assert!(
        seconds("next", "begins") < seconds("shown", "expires"),
        "{record}"
    );
    assert_eq!(
        record["swap"].as_u64().unwrap(),
        seconds("shown", "expires") - 3600
    );
    (pin("shown"), pin("next"), record["new"].as_bool().unwrap())
}

#[test]
fn the_old_hash_is_believed_until_its_certificate_ends_and_the_new_one_from_then_on() {
    let times = Times::new();
    let listen = ["serve", "--listen", "127.0.0.1:0", "--web"];
    let server = Server::start(times.towline(&listen));
    // The client's own certificates are elsewhere: it is the server that has to look.
    let is_shown = |pin: &str| {
        let (url, _) = server.url.split_once('#').unwrap();
        let mut echo = times.towline(&["echo", &format!("{url}#{pin}"), "-c", "1"]);
        echo.env("TOWLINE_HOME", times.scratch.path("client"));
        Running::start(echo).wait().code == Some(0)
    };
    // What the server made is there, twice.
    let (old, first_next, is_new) = rotated(&times, &[]);
    assert!(!is_new);
    assert_eq!(
        rotated(&times, &[]),
        (old.clone(), first_next.clone(), false)
    );
    // Another one, which the running server takes at SIGHUP, or when it looks by itself, and tells pages.
    let (_, new, is_new) = rotated(&times, &["--force"]);
    assert!(is_new && new != first_next);
    server.signal(Signal::HUP);
    let announced = [old.clone(), new.clone()];
    wait_until("the server to announce the next certificate", || {
        server.pins() == announced
    });
    for days in [0, 7, 13] {
        times.move_by(days);
        assert!(is_shown(&old) && !is_shown(&new), "after {days} days");
    }
    times.move_by(14);
    wait_until("the swap", || is_shown(&new));
    assert!(!is_shown(&old));
    let pins = server.pins();
    assert_eq!((&pins[0], pins.len()), (&new, 2));
    assert!(!pins.contains(&old) && !pins.contains(&first_next));
    // Nothing is left of the one that ended.
    let kept = |name: &str| {
        let file = times.scratch.path("home").join(name);
        let pin = ["cert", "pin", "--certificate", file.to_str().unwrap()];
        times.run(&pin).expect(0, &[]).stdout.trim().to_owned()
    };
    assert_eq!([kept("cert.pem"), kept("next-cert.pem")], pins[..]);
    assert_eq!(fs::read_dir(times.scratch.path("home")).unwrap().count(), 3);
    // SIGHUP was no end.
    server.signal(Signal::INT);
    let said = format!("the certificate {old} is shown until");
    server.wait().expect(130, &[&said, &new]);
}

#[test]
fn a_next_certificate_under_a_new_key_takes_over_in_a_running_server() {
    let times = Times::new();
    let server = Server::start(times.towline(&["serve", "--listen", "127.0.0.1:0"]));
    let key = |url: &str| url.split_once('#').unwrap().1.to_owned();
    let old = key(&server.url);
    // The one that is there is under the present key.
    times
        .run(&["cert", "rotate", "--new-key"])
        .expect(1, &["under the present key", "--force"]);
    let rotate = ["cert", "rotate", "--new-key", "--force"];
    times.run(&rotate).expect(0, &["from the swap on"]);
    let is_shown = |url: &str| times.run(&["echo", url, "-c", "1"]).code == Some(0);
    assert!(is_shown(&server.url));
    times.move_by(14);
    let pin = || {
        times
            .run(&["cert", "pin"])
            .expect(0, &[])
            .stdout
            .trim()
            .to_owned()
    };
    let new = pin();
    assert_ne!(new, old);
    let new_url = server.url.replace(&old, &new);
    wait_until("the swap", || is_shown(&new_url));
    assert!(!is_shown(&server.url));
    server.signal(Signal::INT);
    let words = format!("who was given the pin {old} needs {new}");
    server.wait().expect(130, &[&words]);
}

#[test]
fn a_certificate_of_somebody_elses_is_announced_before_it_ends() {
    let times = Times::new();
    times.run(&["cert", "dev"]).expect(0, &[]);
    let file = |name: &str| {
        times
            .scratch
            .path("home")
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    for (days, words) in [
        (1, "our certificate ends on"),
        (20, "our certificate ended on"),
    ] {
        times.move_by(days);
        let listen = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--cert",
            &cert,
            "--key",
            &key,
        ];
        let server = Server::start(times.towline(&listen));
        let refused = times.run(&["echo", &server.url, "-c", "1"]);
        match days {
            1 => drop(refused.expect(0, &[])),
            _ => drop(refused.expect(4, &["has ended"])),
        }
        server.signal(Signal::INT);
        server.wait().expect(130, &[words, "UTC"]);
    }
}

#[test]
fn a_running_server_shows_the_certificate_that_was_put_into_its_files() {
    let (server, other) = (Scratch::new(), Scratch::new());
    let pair = |machine: &Scratch| {
        machine.run(["cert", "dev"]).expect(0, &[]);
        ["cert.pem", "key.pem"].map(|name| machine.path("home").join(name))
    };
    let ([cert, key], [new_cert, new_key]) = (pair(&server), pair(&other));
    let listen = ["serve", "--listen", "127.0.0.1:0", "--cert"];
    let files = [cert.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let serving = server.listen(listen.iter().chain(&files));
    let (old_pin, new_pin) = (Three::pin(&server), Three::pin(&other));
    let new_url = serving.url.replace(&old_pin, &new_pin);
    assert_ne!(new_url, serving.url);
    let is_shown = |url: &str| other.run(["echo", url, "-c", "1"]).code == Some(0);
    assert!(is_shown(&serving.url) && !is_shown(&new_url));

    // Nothing that could be shown: long enough for two looks at it.
    fs::copy(&new_cert, &cert).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert!(is_shown(&serving.url) && !is_shown(&new_url));
    fs::copy(&new_key, &key).unwrap();
    wait_until("the new certificate", || is_shown(&new_url));
    assert!(!is_shown(&serving.url));
    serving.signal(Signal::INT);
    let words = ["cannot be used", "a new certificate, until", &new_pin];
    serving.wait().expect(130, &words);
}

/// A server's machine and two clients'.
struct Three {
    server: Scratch,
    friend: Scratch,
    stranger: Scratch,
}

impl Three {
    fn new() -> Self {
        Self {
            server: Scratch::new(),
            friend: Scratch::new(),
            stranger: Scratch::new(),
        }
    }

    fn pin(machine: &Scratch) -> String {
        let pin = machine.run(["cert", "pin"]).expect(0, &[]);
        pin.stdout.trim().to_owned()
    }

    /// The server receives and offers files.
    fn listen(&self, flags: &[&str]) -> Server {
        self.server.write("root/file", 1000);
        let (root, inbox) = (self.server.path("root"), self.server.path("inbox"));
        let listen = ["serve", "--listen", "127.0.0.1:0", "--root"];
        let folders = [root.to_str().unwrap(), "--accept", inbox.to_str().unwrap()];
        self.server
            .listen(listen.iter().chain(&folders).chain(flags))
    }

    /// Whether this machine can write, and whether it can read.
    fn try_both(&self, machine: &Scratch, server: &Server, flags: &[&str]) -> [Ended; 2] {
        let file = machine.write("mine", 1000);
        let out = machine.path("fetched");
        let send = ["send", file.to_str().unwrap(), &server.url];
        let fetch = [
            "recv",
            &server.url_of("file"),
            "--out",
            out.to_str().unwrap(),
        ];
        [
            machine.run(send.iter().chain(flags)),
            machine.run(fetch.iter().chain(flags)),
        ]
    }

    fn is_empty(&self) -> bool {
        !Path::new(&self.server.path("inbox/mine")).exists()
    }
}

#[test]
fn only_clients_with_a_pinned_key_read_and_write() {
    let three = Three::new();
    let pin = Three::pin(&three.friend);
    for raw in [&[][..], &["--raw-key"]] {
        let _ = fs::remove_dir_all(three.server.path("inbox"));
        let flags = [&["--client-pin", &pin], raw].concat();
        let server = three.listen(&flags);
        assert_eq!(server.url.contains("raw-key"), !raw.is_empty());
        for ended in three.try_both(&three.stranger, &server, &[]) {
            ended.expect(4, &["no key to show", "towline cert pin"]);
        }
        Three::pin(&three.stranger);
        for ended in three.try_both(&three.stranger, &server, &[]) {
            ended.expect(4, &["does not know our key", "--client-pin"]);
        }
        fs::remove_dir_all(three.stranger.path("home")).unwrap();
        assert!(three.is_empty());
        for ended in three.try_both(&three.friend, &server, &[]) {
            ended.expect(0, &[]);
        }
        assert!(!three.is_empty());
    }
}

/// What would say whom to believe is never passed over.
#[test]
fn recv_takes_no_trust_flags_that_it_would_not_heed() {
    let scratch = Scratch::new();
    let pin = format!("sha256/{}", "ab".repeat(32));
    let file = scratch.write("file", 10);
    let file = file.to_str().unwrap();
    let url = format!("towline://127.0.0.1:1/#{pin}");
    let wrong = [
        vec!["--listen", "127.0.0.1:0", "--pin", &pin],
        vec!["--listen", "127.0.0.1:0", "--cacert", file],
        vec!["--listen", "127.0.0.1:0", "--insecure"],
        vec![&url, "--client-pin", &pin],
        vec![&url, "--known-clients", file],
        vec![&url, "--client-ca", file],
    ];
    for flags in wrong {
        let program = scratch.towline(["recv"].iter().chain(&flags));
        let mut running = Running::start(program);
        let code = running.ended_within(std::time::Duration::from_secs(5));
        assert_eq!(code, Some(2), "recv {flags:?}");
    }
}

#[test]
fn known_clients_come_and_go_while_the_server_runs() {
    let three = Three::new();
    let list = three.server.path("known-clients");
    let flags = ["--known-clients", list.to_str().unwrap()];
    three
        .server
        .run(["serve", "--listen", "127.0.0.1:0"].iter().chain(&flags))
        .expect(2, &["known-clients", "NAME PIN DAY"]);
    fs::write(&list, "").unwrap();
    let server = three.listen(&flags);
    let pin = Three::pin(&three.friend);
    let both = |code| {
        for ended in three.try_both(&three.friend, &server, &[]) {
            ended.expect(code, &[]);
        }
    };
    both(4);
    fs::write(&list, format!("# friends\nboat7 {pin} 2026-11-22\n")).unwrap();
    both(0);
    fs::write(&list, "no list at all").unwrap();
    both(0);
    fs::write(&list, "# nobody\n").unwrap();
    both(4);
    server.signal(Signal::INT);
    let log = server.wait().expect(130, &["is not let in", &pin]).stderr;
    let line = log.lines().find(|line| line.contains("is not let in"));
    let begins_with_a_time = |line: &str| {
        let time = line.trim_start_matches(['\u{1b}', '[']);
        time.as_bytes().first().is_some_and(u8::is_ascii_digit) && time.contains('T')
    };
    assert!(line.is_some_and(begins_with_a_time), "{log}");
}

#[test]
fn clients_of_an_authority_come_in() {
    let three = Three::new();
    // A certificate that signs itself is an authority of its own.
    let openssl = |machine: &Scratch, args: &[&str]| {
        let ran = Command::new("openssl")
            .args(args)
            .current_dir(machine.path(""))
            .output();
        match ran {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => panic!("openssl: {error}"),
        }
    };
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: there is no openssl here");
        return;
    }
    let server = &three.server;
    let new = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ];
    let ca = [
        "req", "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca",
    ];
    openssl(server, &[&ca[..], &new].concat());
    let request = [
        "req",
        "-keyout",
        "c.key",
        "-out",
        "c.csr",
        "-subj",
        "/CN=boat7",
    ];
    openssl(server, &[&request[..], &new].concat());
    fs::write(server.path("ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    let sign = [
        "x509", "-req", "-in", "c.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
    ];
    let out = ["-CAcreateserial", "-out", "c.pem", "-extfile", "ext"];
    openssl(server, &[&sign[..], &out].concat());
    let path = |name: &str| server.path(name).to_str().unwrap().to_owned();
    let listening = three.listen(&["--client-ca", &path("ca.pem")]);
    Three::pin(&three.friend);
    for ended in three.try_both(&three.friend, &listening, &[]) {
        ended.expect(4, &["does not know our key"]);
    }
    let shown = ["--cert", &path("c.pem"), "--key", &path("c.key")];
    for ended in three.try_both(&three.friend, &listening, &shown) {
        ended.expect(0, &[]);
    }
}
