//! Signals to a run, from terminals and from elsewhere.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{Running, wait_until};
use crate::net::{Net, which};
use crate::{run, upgraded};

/// Counts in a file what it is told, and ends with 42 at SIGTERM.
const COUNTER: &str = "
import os, signal, sys, time
def note(number, frame):
    with open(sys.argv[1], 'a') as file:
        file.write(signal.Signals(number).name + '\\n')
    if number == signal.SIGTERM:
        sys.exit(42)
for name in ('INT', 'QUIT', 'USR1', 'USR2', 'HUP', 'TERM'):
    if signal.getsignal(getattr(signal, 'SIG' + name)) != signal.SIG_IGN:
        signal.signal(getattr(signal, 'SIG' + name), note)
open(sys.argv[1], 'a').close()
while True:
    time.sleep(0.1)
";

/// Runs what its arguments after the first say in a new terminal; presses Ctrl-C and Ctrl-\\ when the
/// file is there.
const TERMINAL: &str = "
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
for key in (b'\\x03', b'\\x1c'):
    os.write(terminal, key)
    time.sleep(0.7)
with open(sys.argv[1]) as file:
    print('told', *file.read().split())
os.kill(pid, 15)
";

/// The tests themselves may run in a script's background, where keys are ignored.
const DEFAULTS: [&str; 2] = ["env", "--default-signal"];

fn counting(net: &Net) -> (Vec<String>, std::path::PathBuf) {
    let file = net.scratch.path("signals");
    let words = ["python3", "-c", COUNTER, file.to_str().unwrap()];
    (words.map(str::to_owned).into(), file)
}

fn in_new_session(net: &Net, shell: &str, command: &[String]) -> Command {
    let towline = env!("CARGO_BIN_EXE_towline");
    let run = ["setsid", "sh", "-c", shell, "sh", towline];
    let run = DEFAULTS.iter().chain(&run);
    let run = run.chain(&["stcp", "run", "--tier", "relay", "--"]);
    let command = command.iter().map(String::as_str);
    net.program(&net.client, run.copied().chain(command))
}

#[test]
fn signals_are_passed_on_and_keys_have_no_deadline() {
    let Some(net) = Net::new(&["setsid", "python3"]) else {
        return;
    };
    let (command, file) = counting(&net);
    let program = Running::start(in_new_session(&net, "exec \"$@\"", &command));
    let told = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("the program", || file.exists());
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::INT, "SIGINT"),
        (Signal::HUP, "SIGHUP"),
        (Signal::USR1, "SIGUSR1"),
    ] {
        let before = told();
        program.signal(signal);
        wait_until(name, || told() == format!("{before}{name}\n"));
    }
    // After SIGHUP it is the second that asks for an end.
    program.signal(Signal::TERM);
    program.wait().expect(143, &["ended at once"]);
    assert_eq!(net.tables(&net.client), "");
}

#[test]
fn what_whoever_started_it_has_ignored_stays_ignored() {
    let Some(net) = Net::new(&["setsid", "python3"]) else {
        return;
    };
    let (command, file) = counting(&net);
    let shell = "trap '' HUP INT QUIT; exec \"$@\"";
    let program = Running::start(in_new_session(&net, shell, &command));
    wait_until("the program", || file.exists());
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
        program.signal(signal);
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    program.signal(Signal::TERM);
    program.wait().expect(42, &[]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "SIGTERM\n");
}

#[test]
fn keys_of_a_terminal_come_once() {
    let Some(net) = Net::new(&["python3"]) else {
        return;
    };
    let (command, file) = counting(&net);
    let towline = env!("CARGO_BIN_EXE_towline");
    // A shell that ended would have the terminal hang up.
    for shell in ["exec \"$@\"", "trap : INT QUIT; sleep 60 | \"$@\""] {
        let _ = std::fs::remove_file(&file);
        let shell = format!("{shell} 2> {}", net.scratch.path("stderr").display());
        let file = file.to_str().unwrap();
        let terminal = ["python3", "-c", TERMINAL, file, "sh", "-c", &shell, "sh"];
        let before = [&DEFAULTS[..], &terminal].concat();
        let run_relayed = [towline, "stcp", "run", "--tier", "relay", "--"];
        let command = command.iter().map(String::as_str);
        let words = before.into_iter().chain(run_relayed).chain(command);
        let ended = run(net.program(&net.client, words)).expect(0, &[]);
        assert_eq!(ended.stdout.trim(), "told SIGINT SIGQUIT", "{ended:?}");
        wait_until("the end", || net.tables(&net.client).is_empty());
    }
}

#[test]
fn a_signal_before_the_program_leaves_nothing_behind() {
    let Some(net) = Net::new(&[]) else {
        return;
    };
    let (folder, mark) = (net.scratch.path("bin"), net.scratch.path("slow"));
    std::fs::create_dir_all(&folder).unwrap();
    let slow = folder.join("nft");
    let script = format!(
        "#!/bin/sh\nif [ $1 = -f ]; then touch {}; sleep 1; fi\nexec {} \"$@\"\n",
        mark.display(),
        which("nft").unwrap().display()
    );
    std::fs::write(&slow, script).unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    let started = net.scratch.path("started");
    let mut command = upgraded(&net, &net.client, &["touch", started.to_str().unwrap()]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.display()));
    let program = Running::start(command);
    wait_until("nft", || mark.exists());
    let pid = program.pid();
    program.signal(Signal::TERM);
    program
        .wait()
        .expect(143, &["before the program was started"]);
    assert!(!started.exists());
    assert_eq!(net.tables(&net.client), "");
    assert_eq!(net.left_over(&net.client, pid), Vec::<String>::new());
}
