//! How runs begin and end: what is in force before the program starts, what holds when somebody takes
//! it away or kills the run, and what is left afterwards.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{Running, wait_until};
use crate::net::{self, Net, SERVER};
use crate::{MARKER, REDIS, Start, Upgraded, assert_encrypted, run, serve, upgraded};

/// A client that connects in vain or not, again and again, and says how it went, as long as
/// there is a place for it.
pub(crate) fn restless(net: &Net, start: Start) -> Command {
    let script = format!(
        "while [ -d {1} ]; do timeout 0.5 redis-cli -h {SERVER} echo {MARKER} >> {0} 2>&1; echo next >> {0}; done",
        net.scratch.path("said").display(),
        net.scratch.path("").display()
    );
    start(net, &net.client, &["sh", "-c", &script])
}

pub(crate) fn said(net: &Net) -> String {
    std::fs::read_to_string(net.scratch.path("said")).unwrap_or_default()
}

#[test]
fn a_killed_run_leaves_its_program_refused_and_says_how_to_clean_up() {
    let Some(net) = Net::new(&["redis-server", "redis-cli", "busybox", "setpriv"]) else {
        return;
    };
    let _server = serve(&net, 6379, REDIS);
    let sniffer = net.sniff(MARKER);
    let client = Running::start(restless(&net, upgraded));
    wait_until("the client's first word", || said(&net).contains(MARKER));
    let killed = client.pid();
    let rules = net
        .program(&net.client, ["nft", "list", "ruleset"])
        .output();
    let rules = String::from_utf8(rules.unwrap().stdout).unwrap();
    client.kill();
    // The answer to a request that was under way may still be written.
    wait_until("a refusal", || said(&net).contains("refused"));
    std::fs::write(net.scratch.path("said"), "").unwrap();
    wait_until("refusals", || said(&net).matches("refused").count() > 3);
    assert_encrypted(sniffer, 1000);
    // Nobody else can take the relay's place.
    let doors: Vec<u16> = rules
        .split("redirect to :")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(doors.len(), 5, "{rules}");
    for door in doors {
        let listen = format!("exec busybox nc -l -p {door}");
        let nobody = [
            "setpriv",
            "--reuid=65534",
            "--clear-groups",
            "sh",
            "-c",
            &listen,
        ];
        run(net.program(&net.client, nobody)).expect(1, &["Permission denied"]);
    }
    assert!(!said(&net).contains(MARKER), "{}", said(&net));

    // A later run relays its own program, and not the one that was left.
    let word = net.scratch.path("word");
    let script = format!(
        "redis-cli -h {SERVER} echo {MARKER} > {}; exec sleep 600",
        word.display()
    );
    let later = Upgraded::start(upgraded(&net, &net.client, &["sh", "-c", &script]));
    wait_until("the later program's word", || {
        std::fs::read_to_string(&word).is_ok_and(|word| word.contains(MARKER))
    });
    std::fs::write(net.scratch.path("said"), "").unwrap();
    wait_until("more tries", || said(&net).matches("next").count() > 4);
    assert!(!said(&net).contains(MARKER), "{}", said(&net));
    later.end();

    let commands = net.left_over(&net.client, killed);
    // The programs, the table, and the way back in IPv4 and IPv6.
    assert_eq!(commands.len(), 4, "{commands:?}");
    clean_up(&net, &commands);
    assert_eq!(net.left_over(&net.client, killed), Vec::<String>::new());
}

#[test]
fn a_flushed_redirect_lets_nothing_out_and_ends_the_program() {
    let Some(net) = Net::new(&["redis-server", "redis-cli"]) else {
        return;
    };
    let _server = serve(&net, 6379, REDIS);
    let sniffer = net.sniff(MARKER);
    let client = Running::start(restless(&net, upgraded));
    wait_until("the client's first word", || said(&net).contains(MARKER));
    let pid = client.pid();
    let flushed = net
        .program(&net.client, ["nft", "flush", "ruleset"])
        .status();
    assert!(flushed.unwrap().success());
    let tries = || said(&net).matches("next").count();
    let before = tries();
    let ended = client.wait();
    assert!(tries() > before + 3, "{}", said(&net));
    assert_encrypted(sniffer, 1000);
    let ended = ended.expect(1, &["somebody removed the redirect"]);
    assert!(ended.took < Duration::from_secs(20), "{ended:?}");
    assert_eq!(net.left_over(&net.client, pid), Vec::<String>::new());
}

#[test]
fn sigterm_takes_everything_down_with_the_programs_own_code() {
    let Some(net) = Net::new(&[]) else {
        return;
    };
    let script = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.1; done";
    let program = Running::start(upgraded(&net, &net.client, &["sh", "-c", script]));
    wait_until("the table", || {
        net.tables(&net.client).contains("towline-stcp-")
    });
    // The trap has to be set.
    std::thread::sleep(Duration::from_millis(500));
    let pid = program.pid();
    program.signal(Signal::TERM);
    program.wait().expect(42, &[]);
    assert_eq!(net.tables(&net.client), "");
    run(upgraded(&net, &net.client, &["false"])).expect(1, &[]);
    run(upgraded(&net, &net.client, &["/no/such/program"])).expect(127, &["No such file"]);
    assert_eq!(net.tables(&net.client), "");
    assert_eq!(net.left_over(&net.client, pid), Vec::<String>::new());
}

/// How many descriptors a running program may have.
fn limit_descriptors(program: &Running, limit: u64) {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    // Not every root may raise the hard limit again.
    let limit = Rlimit {
        current: Some(limit),
        ..getrlimit(Resource::Nofile)
    };
    let pid = Pid::from_raw(i32::try_from(program.pid()).unwrap());
    prlimit(pid, Resource::Nofile, limit).unwrap();
}

#[test]
fn a_relay_out_of_descriptors_does_not_end_the_program() {
    let Some(net) = Net::new(&[]) else {
        return;
    };
    let script = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.1; done";
    for is_relieved in [true, false] {
        let program = Running::start(upgraded(&net, &net.client, &["sh", "-c", script]));
        let tables = || net.tables(&net.client);
        wait_until("the table", || tables().contains("towline-stcp-"));
        std::thread::sleep(Duration::from_secs(1));
        let pid = program.pid();
        limit_descriptors(&program, 5);
        // It looks for the redirect every five seconds.
        std::thread::sleep(Duration::from_secs(6));
        if is_relieved {
            limit_descriptors(&program, 1000);
        }
        program.signal(Signal::TERM);
        let ended = program.wait().expect(42, &["cannot be told now"]);
        assert!(!ended.stderr.contains("somebody"), "{ended:?}");
        let left = net.left_over(&net.client, pid);
        if is_relieved {
            assert_eq!(tables(), "");
            assert_eq!(left, Vec::<String>::new());
        } else {
            // The program's code is not hidden, nor is what went wrong.
            ended.expect(42, &["see `towline stcp status`"]);
            clean_up(&net, &left);
            assert_eq!(tables(), "");
        }
    }
}

#[test]
fn an_ip_that_cannot_say_does_not_end_the_program() {
    let Some(net) = Net::new(&[]) else {
        return;
    };
    let script = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.1; done";
    let (command, broken) =
        with_ip_that_breaks(&net, upgraded(&net, &net.client, &["sh", "-c", script]));
    let program = Running::start(command);
    wait_until("the table", || {
        net.tables(&net.client).contains("towline-stcp-")
    });
    std::thread::sleep(Duration::from_secs(1));
    std::fs::write(&broken, "*route?show*").unwrap();
    // It looks for the routes every five seconds.
    std::thread::sleep(Duration::from_secs(6));
    std::fs::remove_file(&broken).unwrap();
    program.signal(Signal::TERM);
    let ended = program.wait().expect(42, &["cannot be told now"]);
    assert!(!ended.stderr.contains("somebody"), "{ended:?}");
    assert_eq!(net.tables(&net.client), "");
}

/// A command whose `ip` fails, as one without descriptors, at what matches the pattern in a file, while
/// that is there.
pub(crate) fn with_ip_that_breaks(net: &Net, mut command: Command) -> (Command, PathBuf) {
    let (folder, broken) = (net.scratch.path("ip-bin"), net.scratch.path("broken"));
    std::fs::create_dir_all(&folder).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ -e {0} ]; then pattern=$(cat {0}); case \"$*\" in $pattern) \
         echo 'Cannot open netlink socket: Too many open files' >&2; exit 1;; esac; fi\nexec {1} \"$@\"\n",
        broken.display(),
        net::which("ip").unwrap().display()
    );
    let file = folder.join("ip");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.display()));
    (command, broken)
}

/// Runs commands on the client's host.
fn clean_up(net: &Net, commands: &[String]) {
    for command in commands {
        let cleaned = net.program(&net.client, ["sh", "-c", command]).status();
        assert!(cleaned.unwrap().success(), "{command}");
    }
}

/// The folder of all cgroups.
fn cgroups() -> PathBuf {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = table.lines().find(|line| line.contains(" - cgroup2 "));
    mount
        .and_then(|line| line.split(' ').nth(4))
        .unwrap()
        .into()
}

#[test]
fn what_a_killed_run_with_the_same_number_left_is_replaced() {
    let Some(net) = Net::new(&[]) else {
        return;
    };
    // The shell's number is the run's, when it becomes that.
    let left = format!("{}/towline-stcp-$$", cgroups().display());
    let script = format!(
        "mkdir -p {left}/below; nft add table inet towline-stcp-$$; \
         nft add chain inet towline-stcp-$$ old; number=$((0x5c000000 | ($$ >> 14) << 16 | $$ & 0x3fff)); \
         ip rule add pref 7 fwmark $number lookup $number; \
         ip route add local 192.0.2.9 dev lo table $number; exec \"$@\""
    );
    let towline = env!("CARGO_BIN_EXE_towline");
    let wanted = ["stcp", "run", "--tier", "relay", "nft", "list", "ruleset"];
    let shell = ["sh", "-c", &script, "sh", towline];
    let ended = run(net.program(&net.client, shell.iter().chain(&wanted)));
    let ended = ended.expect(0, &["chain guard_out"]);
    assert!(!ended.stdout.contains("chain old"), "{ended:?}");
    assert_eq!(net.tables(&net.client), "");
    let rules = run(net.program(&net.client, ["ip", "rule", "show"]));
    assert!(!rules.stdout.contains("fwmark"), "{rules:?}");
}

#[test]
fn a_run_that_cannot_be_says_why_and_what_would_do() {
    let Some(net) = Net::new(&["busybox", "python3"]) else {
        return;
    };
    let past_shim = ["stcp", "run", "--tier", "user-relay", "busybox", "true"];
    let words = [
        "this tier does not work here",
        "leave out --tier: relay would do",
    ];
    run(net.towline(&net.client, past_shim)).expect(1, &words);

    let script = "import os, socket, sys; s = socket.socket(); os.dup2(s.fileno(), int(sys.argv[1])); \
                  os.execv(sys.argv[2], sys.argv[2:])";
    for descriptor in ["0", "5"] {
        let before = ["python3", "-c", script, descriptor];
        let wanted = [env!("CARGO_BIN_EXE_towline"), "stcp", "run", "true"];
        let words = format!("descriptor {descriptor} is an internet socket from outside");
        run(net.program(&net.client, before.iter().chain(&wanted))).expect(2, &[&words]);
    }

    let mut homeless = upgraded(&net, &net.client, &["true"]);
    for name in ["TOWLINE_HOME", "XDG_DATA_HOME", "HOME"] {
        homeless.env_remove(name);
    }
    run(homeless).expect(2, &["no place for our key"]);

    let rules = "table ip hides { chain out { type nat hook postrouting priority 100; snat to 192.0.2.1; }; }";
    run(net.program(&net.client, ["nft", rules])).expect(0, &[]);
    let words = ["trial connection", "does a firewall rule rewrite"];
    let ended = run(upgraded(&net, &net.client, &["true"])).expect(1, &words);
    assert!(ended.took < Duration::from_secs(15), "{ended:?}");
}

#[test]
fn a_run_that_waits_for_a_peer_says_so() {
    let Some(net) = Net::new(&["bash", "python3"]) else {
        return;
    };
    // It closes when it is told that the run has said so.
    let told = net.scratch.path("told");
    let server = format!(
        "
import os, socket, time
visitor = socket.create_server(('', 7500)).accept()[0]
while not os.path.exists('{}'):
    time.sleep(0.01)
",
        told.display()
    );
    let _server = serve(&net, 7500, &["python3", "-c", &server]);
    let script = format!("echo {MARKER} > /dev/tcp/{SERVER}/7500");
    let mut client = upgraded(&net, &net.client, &["bash", "-c", &script]);
    client.stderr(std::fs::File::create(net.scratch.path("said")).unwrap());
    let client = Running::start(client);
    let words = "what they wrote last is on its way still";
    wait_until(words, || said(&net).contains(words));
    std::fs::write(told, "").unwrap();
    client.wait().expect(0, &[]);
}

#[test]
fn without_a_redirect_the_program_is_not_started() {
    let Some(net) = Net::new(&[]) else {
        return;
    };
    let mark = net.scratch.path("started");
    let script = format!("touch {}", mark.display());
    let mut command = upgraded(&net, &net.client, &["/bin/sh", "-c", &script]);
    // nsenter itself must be found.
    let folder = net.scratch.path("bin");
    std::fs::create_dir_all(&folder).unwrap();
    let nsenter = net::which("nsenter").unwrap();
    std::os::unix::fs::symlink(nsenter, folder.join("nsenter")).unwrap();
    command.env("PATH", &folder);
    run(command).expect(1, &["not started", "nft is not installed"]);
    assert!(!Path::new(&mark).exists());
}

#[test]
fn who_leaves_the_cgroup_is_ended_and_the_run_with_it() {
    let Some(net) = Net::new(&[]) else {
        return;
    };
    for orphan in [false, true] {
        let file = net.scratch.path("pid");
        let _ = std::fs::remove_file(&file);
        let leave = format!("sleep 600 & echo $! > {}", file.display());
        let script = match orphan {
            true => format!("({leave}); sleep 600"),
            false => format!("{leave}; wait"),
        };
        let program = Running::start(upgraded(&net, &net.client, &["sh", "-c", &script]));
        let pid = || std::fs::read_to_string(&file).unwrap_or_default();
        wait_until("the child", || pid().ends_with('\n'));
        // As PID 1 does with a new session.
        std::fs::write(cgroups().join("cgroup.procs"), pid()).unwrap();
        let words = format!("{} (sleep) left the run's cgroup", pid().trim());
        let ended = program.wait().expect(1, &[&words]);
        assert!(ended.took < Duration::from_secs(10), "{ended:?}");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid().trim()));
        assert!(stat.as_ref().is_ok_and(|stat| stat.contains(") Z")) || stat.is_err());
        assert_eq!(net.tables(&net.client), "");
    }
}
