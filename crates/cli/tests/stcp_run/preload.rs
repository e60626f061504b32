//! Without root: programs of an unprivileged user, whose TCP sockets the shim has made by the agent.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::common::{Running, wait_until};
use crate::ends::{restless, said};
use crate::net::{CLIENT, CLIENT_SECOND, Net, SERVER};
use crate::{
    MARKER, REDIS, Upgraded, a_thousand_connections_leave_nothing, assert_encrypted,
    everything_arrives, nginx_and_curl_are_encrypted, redis_refuses_plaintext, run, serve_by,
    silent_clients_do_not_delay, wait_for_port_at,
};

/// Nobody in particular.
const USER: u32 = 65534;

/// The distribution's: others may be in folders that are not everybody's.
const PYTHON: &str = "/usr/bin/python3";

/// `towline` and the shim beside it, where every user may read them.
pub(crate) fn installed(net: &Net) -> PathBuf {
    let folder = net.scratch.path("bin");
    let towline = folder.join("towline");
    if !towline.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let built = std::env::current_exe().unwrap();
        let shim = built.with_file_name("libtowline_preload.so");
        std::fs::copy(shim, folder.join("libtowline_preload.so")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_towline"), &towline).unwrap();
    }
    towline
}

/// By the agent, as a user without rights.
fn by_user(net: &Net, host: &str, command: &[&str]) -> Command {
    let towline = installed(net);
    let run = ["stcp", "run", "--tier", "user-relay", "--"];
    let words = towline.to_str().into_iter().chain(run);
    as_user(net, host, words.chain(command.iter().copied()))
}

/// A program of a user without rights, to whom the host's home is given.
pub(crate) fn as_user<'a>(
    net: &Net,
    host: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Command {
    let home = net.home(host);
    std::fs::create_dir_all(&home).unwrap();
    for entry in std::fs::read_dir(&home).unwrap() {
        give(&entry.unwrap().path());
    }
    give(&home);
    let user = format!("--reuid={USER}");
    let group = format!("--regid={USER}");
    let mut command = net.program(host, ["setpriv", &user, &group, "--clear-groups"]);
    command.args(words);
    command
}

/// The same, of a program that takes no notice of SIGTERM.
fn by_user_unmoved(net: &Net, host: &str, command: &[&str]) -> Command {
    let shell = ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"];
    by_user(net, host, &[&shell, command].concat())
}

pub(crate) fn give(path: &Path) {
    chown(path, Some(USER), Some(USER)).unwrap();
}

/// By the agent, as root.
fn by_root(net: &Net, host: &str, command: &[&str]) -> Command {
    let towline = installed(net);
    let run = ["stcp", "run", "--tier", "user-relay", "--"];
    let words = towline.to_str().into_iter().chain(run);
    net.program(host, words.chain(command.iter().copied()))
}

#[test]
fn without_root_redis_is_upgraded_and_a_plaintext_client_refused() {
    if let Some(net) = Net::new(&["setpriv", "redis-server", "redis-cli"]) {
        redis_refuses_plaintext(&net, by_user);
    }
}

#[test]
fn without_root_nginx_and_curl_are_upgraded_and_see_real_addresses() {
    let Some(net) = Net::new(&["setpriv", "nginx", "curl"]) else {
        return;
    };
    nginx_and_curl_are_encrypted(&net, by_user, "");
    let config = net.scratch.path("nginx.conf");
    let _server = serve_by(
        by_user,
        &net,
        8080,
        &["nginx", "-c", config.to_str().unwrap()],
    );
    let url = format!("http://{SERVER}:8080/me");
    run(by_user(&net, &net.client, &["curl", "-sS", &url]))
        .expect(0, &["10.78.1.2 at 10.78.2.2:8080"]);
}

#[test]
fn without_root_silent_clients_do_not_delay_a_good_one() {
    if let Some(net) = Net::new(&["setpriv", "redis-server", "redis-cli"]) {
        silent_clients_do_not_delay(&net, by_user);
    }
}

#[test]
fn without_root_a_program_that_writes_and_ends_at_once_loses_nothing() {
    const ACCEPT: &str = "import socket, sys; l = socket.create_server(('', int(sys.argv[1]))); \
        s = l.accept()[0]; [sys.stdout.buffer.write(d) for d in iter(lambda: s.recv(65536), b'')]";
    if let Some(net) = Net::new(&["setpriv", "bash", PYTHON]) {
        everything_arrives(&net, by_user, &[PYTHON, "-c", ACCEPT]);
    }
}

#[test]
fn without_root_the_calls_of_sockets_do_as_they_should() {
    let Some(net) = Net::new(&["setpriv", PYTHON]) else {
        return;
    };
    let script = net.scratch.path("calls.py");
    std::fs::write(&script, include_str!("calls.py")).unwrap();
    let script = script.to_str().unwrap();
    let _server = serve_by(by_user, &net, 7300, &[PYTHON, script, "server", "7300"]);
    let sniffer = net.sniff("to the end");
    let client = [
        PYTHON,
        script,
        "client",
        SERVER,
        "7300",
        "7301",
        CLIENT_SECOND,
    ];
    let ended = run(by_user(&net, &net.client, &client));
    let ended = ended.expect(0, &["every call did as it should"]);
    // What stays here is not secured.
    assert!(!ended.stderr.contains(CLIENT_SECOND), "{ended:?}");
    assert_encrypted(sniffer, 1000);
}

#[test]
fn without_root_a_static_program_is_refused_and_a_static_child_as_well() {
    let Some(net) = Net::new(&["setpriv", "busybox", "redis-server"]) else {
        return;
    };
    let _server = serve_by(by_user, &net, 6379, REDIS);
    let sniffer = net.sniff(MARKER);
    let client = |command: &[&str]| run(by_user(&net, &net.client, command));
    let refused = client(&["busybox", "nc", SERVER, "6379"]);
    refused.expect(1, &["not started", "the program is static"]);
    let script = format!("echo {MARKER} | busybox nc {SERVER} 6379; echo ended $?");
    let child = client(&["sh", "-c", &script]).expect(0, &["Protocol not supported"]);
    assert!(!child.stdout.contains("ended 0"), "{child:?}");
    let seen = sniffer.stop();
    assert_eq!(seen.marked, 0, "{seen:?}");
}

/// At the server's host, for whoever comes in clear.
fn plain_echo(net: &Net, port: u16) -> Running {
    let script = format!(
        "import socketserver as s\n\
         class Echo(s.StreamRequestHandler):\n\
         \x20def handle(self): self.wfile.write(b'plain\\n'); self.wfile.writelines(self.rfile)\n\
         s.ThreadingTCPServer(('', {port}), Echo).serve_forever()"
    );
    let running = Running::start(net.program(&net.server, [PYTHON, "-c", &script]));
    crate::wait_for_port(net, port);
    running
}

#[test]
fn without_root_no_socket_leads_past_the_agent() {
    let Some(net) = Net::new(&["setpriv", PYTHON]) else {
        return;
    };
    let _plain = plain_echo(&net, 7400);
    let script = net.scratch.path("past.py");
    std::fs::write(&script, include_str!("past.py")).unwrap();
    let sniffer = net.sniff(MARKER);
    let client = [
        PYTHON,
        script.to_str().unwrap(),
        SERVER,
        "7400",
        "7401",
        MARKER,
    ];
    let mut client = Upgraded::start(by_user(&net, &net.client, &client));
    wait_for_port_at(&net, &net.client, 7401);
    let come = format!("import socket; socket.create_connection(('{CLIENT}', 7401)).recv(1)");
    run(by_user(&net, &net.server, &[PYTHON, "-c", &come]));
    let ended = client.0.take().unwrap().wait();
    let ended = ended.expect(
        0,
        &["stopped one from outside", "stopped one from 127.0.0.1"],
    );
    assert!(!ended.stdout.contains("reached"), "{ended:?}");
    assert_eq!(ended.stdout.matches("stopped").count(), 7, "{ended:?}");
    let seen = sniffer.stop();
    assert_eq!(seen.marked, 0, "{seen:?}");
}

#[test]
fn without_root_an_own_address_that_leads_elsewhere_is_secured() {
    let Some(net) = Net::new(&["setpriv", PYTHON, "redis-server", "redis-cli"]) else {
        return;
    };
    let _server = serve_by(by_user, &net, 6379, REDIS);
    let _plain = plain_echo(&net, 7400);
    // As a cluster's ports on each of its hosts.
    let rules = format!(
        "table ip elsewhere {{ chain out {{ type nat hook output priority -100; \
         ip daddr {CLIENT} tcp dport 30080 dnat to {SERVER}:6379; \
         ip daddr {CLIENT} tcp dport 30081 dnat to {SERVER}:7400; }}; }}"
    );
    run(net.program(&net.client, ["nft", &rules])).expect(0, &[]);
    let sniffer = net.sniff(MARKER);
    let echo = |port| {
        let echo = ["redis-cli", "-h", CLIENT, "-p", port, "echo", MARKER];
        run(by_user(&net, &net.client, &echo))
    };
    echo("30080").expect(0, &[MARKER]);
    let refused = echo("30081");
    assert!(!refused.stdout.contains(MARKER), "{refused:?}");
    assert!(refused.stderr.contains("does not speak TLS"), "{refused:?}");
    assert_encrypted(sniffer, 1000);
}

#[test]
fn without_root_a_connection_ends_with_its_address() {
    let Some(net) = Net::new(&["setpriv", PYTHON]) else {
        return;
    };
    let go = net.scratch.path("go");
    let script = format!(
        "
import os, socket, time
ends = []
for address in ('{CLIENT_SECOND}', 'fd78:1::9'):
    family = socket.getaddrinfo(address, 1)[0][0]
    listening = socket.create_server((address, 7400), family=family)
    ends.append(socket.create_connection((address, 7400)))
    ends.append(listening.accept()[0])
ready = socket.create_server(('127.0.0.1', 7401))
while not os.path.exists('{}'):
    time.sleep(0.01)
for end in ends:
    try:
        for _ in range(20):
            end.sendall(b'{MARKER}')
            time.sleep(0.01)
        print('sent')
    except ConnectionError:
        print('over')
",
        go.display()
    );
    let address = |what: &str, host: &str, device: &str| {
        for address in [&format!("{CLIENT_SECOND}/24"), "fd78:1::9/64"] {
            let nodad: &[&str] = if address.contains("::") {
                &["nodad"]
            } else {
                &[]
            };
            let command = [&["ip", "addr", what, address, "dev", device], nodad].concat();
            run(net.program(host, command)).expect(0, &[]);
        }
    };
    let only_v6 = ["ip", "addr", "add", "fd78:1::9/64", "dev", "eth0", "nodad"];
    run(net.program(&net.client, only_v6)).expect(0, &[]);
    let mut client = Upgraded::start(by_user(&net, &net.client, &[PYTHON, "-c", &script]));
    wait_for_port_at(&net, &net.client, 7401);
    let sniffer = net.sniff(MARKER);
    address("del", &net.client, "eth0");
    address("add", &net.cable, "c");
    std::fs::write(&go, "").unwrap();
    let ended = client.0.take().unwrap().wait();
    let ended = ended.expect(0, &["over"]);
    assert_eq!(ended.stdout.matches("over").count(), 4, "{ended:?}");
    let seen = sniffer.stop();
    assert_eq!(seen.marked, 0, "{seen:?}");
}

#[test]
fn without_root_a_program_whose_run_is_killed_reaches_nobody() {
    let Some(net) = Net::new(&["setpriv", "redis-server", "redis-cli"]) else {
        return;
    };
    let _server = serve_by(by_user, &net, 6379, REDIS);
    std::fs::write(net.scratch.path("said"), "").unwrap();
    give(&net.scratch.path("said"));
    let sniffer = net.sniff(MARKER);
    let client = Running::start(restless(&net, by_user_unmoved));
    wait_until("the client's first word", || said(&net).contains(MARKER));
    client.kill();
    std::fs::write(net.scratch.path("said"), "").unwrap();
    wait_until("refusals", || {
        said(&net).matches("Network is down").count() > 3
    });
    assert_encrypted(sniffer, 1000);
}

#[test]
fn without_root_a_server_whose_run_is_killed_ends_with_it() {
    let Some(net) = Net::new(&["setpriv", "redis-server"]) else {
        return;
    };
    let server = Running::start(by_user(&net, &net.server, REDIS));
    crate::wait_for_port(&net, 6379);
    let child = format!("/proc/{0}/task/{0}/children", server.pid());
    let child = std::fs::read_to_string(child).unwrap();
    let child = PathBuf::from(format!("/proc/{}", child.trim()));
    assert!(child.exists(), "{child:?}");
    server.kill();
    wait_until("the server's end", || !child.exists());
}

#[test]
fn without_root_a_program_in_the_background_stays_encrypted_until_it_ends() {
    let Some(net) = Net::new(&["setpriv", "redis-server", "redis-cli"]) else {
        return;
    };
    let script = format!(
        "{} > /dev/null & exit 0",
        REDIS.join(" ").replace("  ", " '' ")
    );
    let server = Upgraded::start(by_user(&net, &net.server, &["sh", "-c", &script]));
    crate::wait_for_port(&net, 6379);
    let ping = ["redis-cli", "-h", SERVER, "ping"];
    run(by_user(&net, &net.client, &ping)).expect(0, &["PONG"]);
    let ended = server.end();
    ended.expect(0, &["the program has ended"]);
}

#[test]
fn without_root_the_programs_own_code_comes_back_and_sigterm_goes_on() {
    let Some(net) = Net::new(&["setpriv"]) else {
        return;
    };
    let script = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.1; done";
    let program = Running::start(by_user(&net, &net.client, &["sh", "-c", script]));
    std::thread::sleep(std::time::Duration::from_secs(1));
    program.signal(Signal::TERM);
    program.wait().expect(42, &[]);
    run(by_user(&net, &net.client, &["false"])).expect(1, &[]);
    run(by_user(&net, &net.client, &["/no/such/program"])).expect(127, &["No such file"]);
}

#[test]
fn by_the_agent_a_thousand_connections_at_random_leave_nothing_behind() {
    if let Some(net) = Net::new(&[]) {
        a_thousand_connections_leave_nothing(&net, by_root);
    }
}
