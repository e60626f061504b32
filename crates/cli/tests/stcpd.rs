//! `towline stcpd`, the agent: what it says to its service manager, how it reads its policy again,
//! gives up root and ends.
#![cfg(target_os = "linux")]

mod common;

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Scratch, Server};
use rustix::process::Signal;

/// An agent and the service manager's end.
struct Daemon {
    agent: Server,
    manager: UnixDatagram,
}

/// What stands for the module's device: no request ever comes.
fn device(scratch: &Scratch) -> PathBuf {
    let pipe = scratch.path("device");
    if !pipe.exists() {
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
    }
    pipe
}

impl Daemon {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Result<Self, String> {
        let notify = scratch.path("notify.sock");
        let _ = std::fs::remove_file(&notify);
        let manager = UnixDatagram::bind(&notify).unwrap();
        // As systemd's: for every user.
        std::fs::set_permissions(&notify, Permissions::from_mode(0o777)).unwrap();
        manager
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut command = scratch.towline(["stcpd", "--json", "--device"]);
        command
            .arg(device(scratch))
            .args(arguments)
            .env("NOTIFY_SOCKET", &notify)
            .env("WATCHDOG_USEC", "200000");
        let (agent, _) = Server::start_saying(command, "towline.stcpd/1")?;
        Ok(Self { agent, manager })
    }

    /// The manager's next word, other than that the agent lives.
    fn told(&self) -> String {
        loop {
            let mut bytes = [0; 256];
            let len = self.manager.recv(&mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
            if text != "WATCHDOG=1" {
                return text;
            }
        }
    }
}

#[test]
fn it_is_ready_reloads_and_ends_well() {
    let scratch = Scratch::new();
    let policy = scratch.path("stcp.toml");
    std::fs::write(&policy, "[client]\nknown_peers = \"known\"\n").unwrap();
    let flags = ["--policy", policy.to_str().unwrap()];
    let daemon = Daemon::start(&scratch, &flags).unwrap();
    assert_eq!(daemon.told(), "READY=1");

    for text in ["[client]\nknown_peers = \"other\"\n", "damaged"] {
        std::fs::write(&policy, text).unwrap();
        daemon.agent.signal(Signal::HUP);
        assert!(daemon.told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(daemon.told(), "READY=1");
    }
    daemon.agent.signal(Signal::TERM);
    assert_eq!(daemon.told(), "STOPPING=1");
    let words = ["the policy was read again", "the old policy stays in force"];
    daemon.agent.wait().expect(0, &words);
}

#[test]
fn it_lives_as_often_as_the_manager_asks() {
    let scratch = Scratch::new();
    let daemon = Daemon::start(&scratch, &[]).unwrap();
    let mut alive = 0;
    while alive < 3 {
        let mut bytes = [0; 64];
        let len = daemon.manager.recv(&mut bytes).unwrap();
        alive += usize::from(&bytes[..len] == b"WATCHDOG=1");
    }
}

#[test]
fn a_wrong_policy_or_user_is_named_before_anything_is_open() {
    let scratch = Scratch::new();
    let policy = scratch.path("stcp.toml");
    std::fs::write(&policy, "[client]\npin = \"x\"\n").unwrap();
    let policy = policy.to_str().unwrap();
    let flags = ["stcpd", "--policy", policy];
    scratch.run(flags).expect(2, &["stcp.toml, line 1"]);
    let flags = ["stcpd", "--user", "no-such-user"];
    scratch
        .run(flags)
        .expect(2, &["there is no user", "useradd"]);
    let flags = ["stcpd", "--device", "/dev/no-such-device"];
    scratch.run(flags).expect(1, &["modprobe stcp"]);
}

#[test]
fn it_gives_up_root_for_good() {
    if !rustix::process::geteuid().is_root() {
        // The print macros would be captured.
        let _ = writeln!(std::io::stderr(), "SKIPPED stcpd --user: it needs root");
        return;
    }
    let scratch = Scratch::new();
    let daemon = Daemon::start(&scratch, &["--user", "nobody"]).unwrap();
    assert_eq!(daemon.told(), "READY=1");
    let threads = format!("/proc/{}/task", daemon.agent.pid());
    for thread in std::fs::read_dir(threads).unwrap() {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        for line in [
            "Uid:\t65534\t65534\t65534\t65534",
            "Gid:\t65534\t65534\t65534\t65534",
            "Groups:\t",
            "CapPrm:\t0000000000000000",
            "NoNewPrivs:\t1",
        ] {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    // What was made at the first use is the user's, so that it can be read again.
    let key = scratch.path("home/stcp-key.pem");
    assert_eq!(std::fs::metadata(key).unwrap().uid(), 65534);
    daemon.agent.signal(Signal::HUP);
    assert!(daemon.told().starts_with("RELOADING=1"));
    assert_eq!(daemon.told(), "READY=1");
    daemon.agent.signal(Signal::TERM);
    let ended = daemon.agent.wait();
    assert!(!ended.stderr.contains("stays in force"), "{ended:?}");
}

#[test]
fn a_policy_that_its_user_could_not_use_is_named_at_the_start() {
    if !rustix::process::geteuid().is_root() {
        // The print macros would be captured.
        let _ = writeln!(std::io::stderr(), "SKIPPED stcpd --user: it needs root");
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path("policy");
    std::fs::create_dir_all(&folder).unwrap();
    let policy = folder.join("stcp.toml");
    std::fs::write(&policy, "[client]\nknown_peers = \"known\"\n").unwrap();
    let device = device(&scratch);
    let flags = [
        "stcpd",
        "--device",
        device.to_str().unwrap(),
        "--user",
        "nobody",
        "--policy",
        policy.to_str().unwrap(),
    ];
    let words = ["new peers cannot be added", "let the agent's user write"];
    scratch.run(flags).expect(2, &words);
    let own = |path: &std::path::Path, uid| std::os::unix::fs::chown(path, Some(uid), None);
    own(&folder, 65534).unwrap();
    std::fs::set_permissions(&policy, Permissions::from_mode(0o600)).unwrap();
    scratch.run(flags).expect(2, &["SIGHUP would not be able"]);
    own(&policy, 65534).unwrap();
    let daemon = Daemon::start(&scratch, &flags[3..]).unwrap();
    assert_eq!(daemon.told(), "READY=1");
    // Gone, or out of sight, it is not taken for one that was never there.
    std::fs::remove_file(&policy).unwrap();
    daemon.agent.signal(Signal::HUP);
    assert!(daemon.told().starts_with("RELOADING=1"));
    assert_eq!(daemon.told(), "READY=1");
    daemon.agent.signal(Signal::TERM);
    let words = ["the old policy stays in force"];
    daemon.agent.wait().expect(0, &words);
}

#[test]
fn its_unit_is_one_that_systemd_understands() {
    let unit = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/towline-stcpd.service"
    ))
    .unwrap();
    let scratch = Scratch::new();
    let file = scratch.path("towline-stcpd.service");
    // It must name a program that is there.
    let unit = unit.replace("/usr/bin/towline", env!("CARGO_BIN_EXE_towline"));
    std::fs::write(&file, unit).unwrap();
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&file)
        .stdin(Stdio::null())
        .output();
    let Ok(verified) = verified else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED systemd unit: no systemd-analyze"
        );
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
}
