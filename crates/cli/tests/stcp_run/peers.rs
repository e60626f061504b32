//! Whom a server sees: programs decide by their peers' addresses, so each has to be the real one, at
//! the tier that is taken by default, as root and as any user.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, Running, wait_until};
use crate::ends::with_ip_that_breaks;
use crate::net::{CLIENT, Net, SERVER, SERVER_V6, mark_of, skipped, which};
use crate::preload::{as_user, give, installed};
use crate::{
    MARKER, REDIS, Start, TIME_WAIT, Upgraded, assert_encrypted, has_socket, run, serve, serve_by,
    upgraded, wait_for_port, wait_for_port_at,
};

/// `stcp run` without `--tier`.
fn by_root(net: &Net, host: &str, command: &[&str]) -> Command {
    let towline = installed(net);
    let words = [towline.to_str().unwrap(), "stcp", "run", "--"];
    net.program(host, words.iter().chain(command))
}

/// The same as a user without rights.
fn by_user(net: &Net, host: &str, command: &[&str]) -> Command {
    let towline = installed(net);
    let words = [towline.to_str().unwrap(), "stcp", "run", "--"];
    as_user(net, host, words.iter().chain(command).copied())
}

/// Whoever runs programs, and the tier that they get.
const WAYS: [(Start, &str); 2] = [(by_root, "relay"), (by_user, "user-relay")];

/// A server ends well, and said at its start what it would see.
fn said_its_tier(ended: &Ended, tier: &str) {
    let words = format!("tier {tier}; the program sees its peers' own addresses");
    assert!(ended.stderr.contains(&words), "{ended:?}");
}

fn home(net: &Net, name: &str) -> PathBuf {
    let folder = net.scratch.path(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn nginx_sees_who_asks_and_tells_the_server_behind_it() {
    let Some(net) = Net::new(&["setpriv", "nginx", "curl"]) else {
        return;
    };
    for (start, tier) in WAYS {
        let user = if tier == "relay" { "user root;" } else { "" };
        // Another server, at the client's host, is behind it.
        let listen = |host: &str, port: u16, body: &str| {
            let home = home(&net, host);
            let home = home.display();
            let config = net.scratch.path(&format!("{host}.conf"));
            let text = format!(
                "daemon off; {user} pid {home}/pid; error_log {home}/error.log; events {{}}
                http {{ access_log off; client_body_temp_path {home}/a; proxy_temp_path {home}/b;
                fastcgi_temp_path {home}/c; uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
                server {{ listen {port}; listen [::]:{port} ipv6only=on; location / {{ {body} }} }} }}"
            );
            std::fs::write(&config, text).unwrap();
            config
        };
        let behind = listen(
            &net.client,
            8081,
            &format!("return 200 \"{MARKER} $http_x_real_ip by $remote_addr\\n\";"),
        );
        let proxy = listen(
            &net.server,
            8080,
            &format!(
                "proxy_set_header X-Real-IP $remote_addr; proxy_set_header Marker {MARKER}; \
                 proxy_pass http://{CLIENT}:8081;"
            ),
        );
        let nginx = |config: &Path| ["nginx", "-c", config.to_str().unwrap()].map(str::to_owned);
        let behind = nginx(&behind);
        let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
        let proxy = nginx(&proxy);
        let proxy: Vec<&str> = proxy.iter().map(String::as_str).collect();
        let behind = Upgraded::start(start(&net, &net.client, &behind));
        crate::wait_for_port_at(&net, &net.client, 8081);
        let proxy = serve_by(start, &net, 8080, &proxy);
        let sniffer = net.sniff(MARKER);
        for (host, real) in [
            (SERVER.to_owned(), CLIENT),
            (format!("[{SERVER_V6}]"), "fd78:1::2"),
        ] {
            let url = format!("http://{host}:8080/");
            let said = run(start(&net, &net.client, &["curl", "-sS", &url]));
            said.expect(0, &[&format!("{MARKER} {real} by {SERVER}")]);
        }
        assert_encrypted(sniffer, 2000);
        said_its_tier(&proxy.end(), tier);
        said_its_tier(&behind.end(), tier);
    }
}

#[test]
fn redis_lists_its_clients_by_their_own_addresses() {
    let Some(net) = Net::new(&["setpriv", "redis-server", "redis-cli"]) else {
        return;
    };
    // As strict as hosts are about where packets come from.
    let strict =
        "for device in all lo eth0; do echo 1 > /proc/sys/net/ipv4/conf/$device/rp_filter; done";
    run(net.program(&net.server, ["sh", "-c", strict])).expect(0, &[]);
    for (start, tier) in WAYS {
        let server = serve_by(start, &net, 6379, REDIS);
        let sniffer = net.sniff(MARKER);
        let client = |words: &[&str]| {
            let command = [&["redis-cli", "-h", SERVER], words].concat();
            run(start(&net, &net.client, &command))
        };
        client(&["set", "key", MARKER]).expect(0, &["OK"]);
        client(&["client", "list"]).expect(0, &[&format!(" addr={CLIENT}:")]);
        assert_encrypted(sniffer, 1000);
        said_its_tier(&server.end(), tier);
    }
}

/// Where PostgreSQL's programs are: not among everybody's.
fn postgres_folder() -> Option<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = installed.flatten().map(|entry| entry.path().join("bin"));
    folders.filter(|bin| bin.join("initdb").exists()).max()
}

#[test]
fn a_stranger_is_not_the_same_host_for_postgres() {
    let Some(net) = Net::new(&["setpriv", "sh"]) else {
        return;
    };
    let Some(bin) = postgres_folder() else {
        skipped::<()>("postgresql is not installed (make setup-system)");
        return;
    };
    let program = |name: &str| bin.join(name).display().to_string();
    for (start, tier) in WAYS {
        let data = net.scratch.path(&format!("data-{tier}"));
        let data = data.to_str().unwrap();
        give(&net.scratch.path(""));
        let script = format!(
            "{} -D {data} -U postgres -A trust --no-sync --no-locale -E UTF8 > /dev/null && \
             echo 'create role friend login' | {} --single -D {data} postgres > /dev/null",
            program("initdb"),
            program("postgres")
        );
        run(as_user(&net, &net.server, ["sh", "-c", &script])).expect(0, &[]);
        let rules = format!(
            "host all friend {CLIENT}/32 trust\nhost all all samehost trust\nhost all all samenet reject\n\
             host all all {CLIENT}/24 reject\n"
        );
        std::fs::write(format!("{data}/pg_hba.conf"), rules).unwrap();
        // Nobody may run it as root.
        let user = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ];
        let before: &[&str] = if tier == "relay" { &user } else { &[] };
        let postgres = program("postgres");
        let sockets = format!("unix_socket_directories={data}");
        let options = ["-D", data, "-c", "listen_addresses=*", "-c", &sockets];
        let command = [before, &[&postgres], &options].concat();
        let server = serve_by(start, &net, 5432, &command);
        let sniffer = net.sniff(MARKER);
        let psql = program("psql");
        let ask = |role: &str| {
            let query = format!("select '{MARKER} ' || inet_client_addr()");
            let to = format!("host={SERVER} user={role} dbname=postgres sslmode=disable");
            run(start(
                &net,
                &net.client,
                &[&psql, "-A", "-t", "-c", &query, &to],
            ))
        };
        ask("friend").expect(0, &[&format!("{MARKER} {CLIENT}")]);
        let words = format!("rejects connection for host \"{CLIENT}\", user \"postgres\"");
        ask("postgres").expect(2, &[&words]);
        assert_encrypted(sniffer, 1000);
        said_its_tier(&server.end(), tier);
    }
}

#[test]
fn sshd_logs_who_came() {
    let Some(net) = Net::new(&["setpriv", "sshd", "ssh", "ssh-keygen", "unshare"]) else {
        return;
    };
    let key = |host: &str| {
        let file = home(&net, host).join("id");
        let file = file.to_str().unwrap().to_owned();
        let keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &file];
        run(net.program(host, keygen)).expect(0, &[]);
        file
    };
    let (server_key, client_key) = (key(&net.server), key(&net.client));
    let sshd = which("sshd").unwrap();
    for (start, tier) in WAYS {
        let config = net.home(&net.server).join("sshd_config");
        let text = format!(
            "Port 2222\nHostKey {server_key}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin yes\nAuthorizedKeysFile {client_key}.pub\n"
        );
        std::fs::write(&config, text).unwrap();
        let daemon = format!("exec {} -D -e -f {}", sshd.display(), config.display());
        // As root it wants a folder that a service makes.
        let script = format!("mount -t tmpfs tmpfs /run && mkdir /run/sshd && {daemon}");
        let (user, command) = match tier {
            "relay" => ("root", vec!["unshare", "--mount", "sh", "-c", &script]),
            _ => ("nobody", vec!["sh", "-c", &daemon]),
        };
        let server = serve_by(start, &net, 2222, &command);
        let sniffer = net.sniff("SSH-2.0-");
        let to = format!("{user}@{SERVER}");
        let client = [
            "ssh",
            "-p",
            "2222",
            "-i",
            &client_key,
            "-o",
            "BatchMode=yes",
        ];
        let options = [
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ];
        let command = [&client[..], &options, &[&to, "echo logged in"]].concat();
        let ended = run(start(&net, &net.client, &command));
        // Nobody may log in as nobody, but come.
        let words = match user {
            "root" => {
                ended.expect(0, &["logged in"]);
                format!("Accepted publickey for root from {CLIENT} port ")
            }
            _ => format!("user nobody {CLIENT} port "),
        };
        assert_encrypted(sniffer, 2000);
        let ended = server.end();
        said_its_tier(&ended, tier);
        assert!(ended.stderr.contains(&words), "{ended:?}");
    }
}

/// Says who has come, and sends back what comes.
const GO_SERVER: &str = r#"
package main

import ("fmt"; "io"; "net")

func main() {
    listener, err := net.Listen("tcp", ":7600")
    if err != nil { panic(err) }
    for {
        stream, err := listener.Accept()
        if err != nil { panic(err) }
        go func() {
            fmt.Fprintf(stream, "you are %s\n", stream.RemoteAddr())
            io.Copy(stream, stream)
            stream.Close()
        }()
    }
}
"#;

#[test]
fn a_server_in_go_sees_who_came_or_is_not_started() {
    let Some(net) = Net::new(&["setpriv", "go", "bash"]) else {
        return;
    };
    let source = net.scratch.path("server.go");
    std::fs::write(&source, GO_SERVER).unwrap();
    let server = net.scratch.path("server");
    let mut build = Command::new("go");
    build.arg("build").arg("-o").arg(&server).arg(&source);
    build.env("CGO_ENABLED", "0").env("GOFLAGS", "-trimpath");
    assert!(
        build
            .current_dir(net.scratch.path(""))
            .status()
            .unwrap()
            .success()
    );
    let server = server.to_str().unwrap();

    let ended = run(by_user(&net, &net.server, &[server]));
    ended.expect(1, &["not started", "the program is static"]);

    let running = serve_by(by_root, &net, 7600, &[server]);
    let sniffer = net.sniff(MARKER);
    let script = format!(
        "exec 3<>/dev/tcp/{SERVER}/7600; read line <&3; echo $line; echo {MARKER} >&3; read line <&3; echo $line"
    );
    for start in [by_root, by_user] {
        let ended = run(start(&net, &net.client, &["bash", "-c", &script]));
        ended.expect(0, &[&format!("you are {CLIENT}:"), MARKER]);
    }
    assert_encrypted(sniffer, 1000);
    said_its_tier(&running.end(), "relay");
}

#[test]
fn a_peer_may_use_its_port_again_at_once() {
    let Some(net) = Net::new(&["python3"]) else {
        return;
    };
    let closed = net.scratch.path("closed");
    let closed = closed.display();
    // It closes first, so that the kernel keeps its end for a minute.
    let server = format!(
        "
import socket
door = socket.create_server(('0.0.0.0', 7700))
while True:
    visitor, peer = door.accept()
    visitor.sendall(f'{{peer[0]}} {{peer[1]}}'.encode())
    visitor.shutdown(socket.SHUT_WR)
    visitor.recv(1)
    visitor.close()
    with open('{closed}', 'a') as file:
        file.write('.')
"
    );
    // A peer that closed first would keep its port from itself. An end of the stream comes before the kernel's, so it
    // closes when that has come (CLOSE_WAIT), and its port is free when the kernel has no end of it any more.
    let client = format!(
        "
import os, socket, time
def state():
    with open('/proc/net/tcp') as table:
        rows = [line.split() for line in table]
    return next((row[3] for row in rows if row[1].endswith(':A112')), None)
def wait_until(done):
    while not done():
        time.sleep(0.01)
for times in range(1, 6):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('{CLIENT}', 41234))
    s.settimeout(10)
    s.connect(('{SERVER}', 7700))
    print(b''.join(iter(lambda: s.recv(100), b'')).decode())
    wait_until(lambda: state() == '08')
    s.close()
    wait_until(lambda: state() is None)
    wait_until(lambda: os.path.exists('{closed}') and os.path.getsize('{closed}') == times)
"
    );
    let server = serve_by(by_root, &net, 7700, &["python3", "-c", &server]);
    let towline = installed(&net);
    let tier = ["stcp", "run", "--tier", "user-relay", "--", "python3", "-c"];
    let words = towline.to_str().into_iter().chain(tier).chain([&*client]);
    let ended = run(net.program(&net.client, words)).expect(0, &[]);
    let same = format!("{CLIENT} 41234");
    assert_eq!(ended.stdout.matches(&same).count(), 5, "{ended:?}");
    assert!(has_socket(&net, &net.server, 7700, TIME_WAIT));
    server.end();
}

#[test]
fn a_program_that_would_see_this_host_as_its_peer_sees_nobody() {
    let Some(net) = Net::new(&["redis-server", "redis-cli"]) else {
        return;
    };
    let server = serve_by(by_root, &net, 6379, REDIS);
    let ping = ["redis-cli", "-h", SERVER, "ping"];
    run(by_root(&net, &net.client, &ping)).expect(0, &["PONG"]);
    // As a cluster's rules masquerade what has this mark or that.
    let rules = format!(
        "table ip hides {{ chain out {{ type nat hook postrouting priority 100; \
         tcp dport 6379 snat to {SERVER}; }}; }}"
    );
    run(net.program(&net.server, ["nft", &rules])).expect(0, &[]);
    let refused = run(by_root(&net, &net.client, &ping));
    assert!(!refused.stdout.contains("PONG"), "{refused:?}");
    let ended = server.end();
    let words = format!("would not see its peer's address {CLIENT}");
    assert!(ended.stderr.contains(&words), "{ended:?}");
}

#[test]
fn without_the_way_back_nothing_is_answered_until_it_is_back() {
    let Some(net) = Net::new(&["redis-server", "redis-cli"]) else {
        return;
    };
    let (command, broken) = with_ip_that_breaks(&net, by_root(&net, &net.server, REDIS));
    let server = Upgraded::start(command);
    wait_for_port(&net, 6379);
    let pid = server.0.as_ref().unwrap().pid();
    let sniffer = net.sniff(MARKER);
    let echo = ["redis-cli", "-h", SERVER, "echo", MARKER];
    run(by_root(&net, &net.client, &echo)).expect(0, &[MARKER]);
    // As long as it cannot be put back.
    std::fs::write(&broken, "*").unwrap();
    let number = mark_of(pid).to_string();
    for family in ["-4", "-6"] {
        let remove = [
            "ip", family, "rule", "del", "fwmark", &number, "lookup", &number,
        ];
        run(net.program(&net.server, remove)).expect(0, &[]);
    }
    let in_vain = [&["timeout", "3"], &echo[..]].concat();
    let refused = run(by_root(&net, &net.client, &in_vain));
    assert!(!refused.stdout.contains(MARKER), "{refused:?}");
    std::fs::remove_file(&broken).unwrap();
    // As a service that manages the network does when it starts again: rules, or routes.
    let flush = ["ip", "-4", "route", "flush", "table", &number];
    for flush in [None, Some(flush)] {
        if let Some(flush) = flush {
            run(net.program(&net.server, flush)).expect(0, &[]);
        }
        let there = || {
            let rules = run(net.program(&net.server, ["ip", "rule", "show"]));
            let routes = run(net.program(&net.server, ["ip", "route", "show", "table", &number]));
            rules.stdout.contains(&format!("lookup {number}"))
                && routes.stdout.contains("local default")
        };
        wait_until("the way back", there);
        run(by_root(&net, &net.client, &echo)).expect(0, &[MARKER]);
    }
    assert_encrypted(sniffer, 1000);
    let words = "somebody removed the way back of the programs' answers";
    let ended = server.end().expect(0, &[]);
    assert_eq!(ended.stderr.matches(words).count(), 2, "{ended:?}");
    assert_eq!(net.left_over(&net.server, pid), Vec::<String>::new());
}

#[test]
fn a_run_says_at_its_start_that_nobody_could_reach_the_program() {
    let Some(net) = Net::new(&["redis-server", "redis-cli"]) else {
        return;
    };
    // As a firewall that uses bits of marks, which the run's has by chance.
    let rules = "table inet hides { chain out { type filter hook output priority 200; \
                 meta mark & 0xff000000 == 0x5c000000 drop; }; }";
    run(net.program(&net.server, ["nft", rules])).expect(0, &[]);
    let words = [
        "connections from other hosts will be refused",
        "nft list ruleset",
    ];
    let alone = ["stcp", "run", "--json", "--tier", "relay", "true"];
    let ended = run(net.towline(&net.server, alone)).expect(0, &words);
    let record = ended.record("towline.stcp.run/1");
    assert!(record["no_way_in"].is_string(), "{record}");
    // What the program does itself is not affected.
    let server = serve(&net, 6379, REDIS);
    let ping = ["redis-cli", "-h", CLIENT, "ping"];
    let _redis = Upgraded::start(by_root(&net, &net.client, REDIS));
    wait_for_port_at(&net, &net.client, 6379);
    run(upgraded(&net, &net.server, &ping)).expect(0, &["PONG"]);
    server.end().expect(0, &words);
    run(net.program(&net.server, ["nft", "delete table inet hides"])).expect(0, &[]);
    let ended = run(net.towline(&net.server, alone)).expect(0, &[]);
    assert!(!ended.stderr.contains(words[0]), "{ended:?}");
    assert!(ended.record("towline.stcp.run/1")["no_way_in"].is_null());
}

#[test]
fn another_programs_port_is_not_kept_by_those_who_come_to_it() {
    let Some(net) = Net::new(&["python3", "bash"]) else {
        return;
    };
    // The program of the run leaves the port to another one.
    let left = net.scratch.path("left");
    let program = format!(
        "
import socket, time
door = socket.create_server(('0.0.0.0', 7800))
visitor = door.accept()[0]
visitor.sendall(b'first\\n')
visitor.close()
door.close()
open('{}', 'w')
time.sleep(600)
",
        left.display()
    );
    let other = "
import socket
door = socket.create_server(('0.0.0.0', 7800), backlog=200)
while True:
    visitor = door.accept()[0]
    visitor.sendall(b'other\\n')
    visitor.close()
";
    let server = serve(&net, 7800, &["python3", "-c", &program]);
    let table = format!("towline-stcp-{}", server.0.as_ref().unwrap().pid());
    let script = format!("exec 3<>/dev/tcp/{SERVER}/7800; read line <&3; echo $line");
    let ask = || run(upgraded(&net, &net.client, &["bash", "-c", &script]));
    ask().expect(0, &["first"]);
    wait_until("the port", || left.exists());
    let _other = Running::start(net.program(&net.server, ["python3", "-c", other]));
    wait_for_port(&net, 7800);
    // How long it is still redirected, in seconds.
    let rest = || {
        let list = ["nft", "-j", "list", "set", "inet", &table, "reached4"];
        let listed = run(net.program(&net.server, list)).expect(0, &[]);
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
        let objects = listed["nftables"].as_array().unwrap();
        let set = objects.iter().find_map(|object| object.get("set"));
        set.unwrap()["elem"][0]["elem"]["expires"].as_u64().unwrap()
    };
    wait_until("a few seconds", || rest() < 117);
    let before = rest();
    ask().expect(0, &["other"]);
    assert!(rest() <= before, "it begins anew: {before}, {}", rest());
    server.end();
}
