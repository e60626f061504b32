//! `towline stcp`: the echo and the proxy as real programs.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Scratch, Server};
use rustix::process::Signal;

/// Two machines, each with a key of its own.
struct Two {
    client: Scratch,
    server: Scratch,
    client_pin: String,
    server_pin: String,
}

impl Two {
    fn new() -> Self {
        let (client, server) = (Scratch::new(), Scratch::new());
        let pin = |machine: &Scratch| {
            let ended = machine.run(["stcp", "key"]).expect(0, &["sha256/"]);
            ended.stdout.trim().to_owned()
        };
        Self {
            client_pin: pin(&client),
            server_pin: pin(&server),
            client,
            server,
        }
    }

    /// The proxy in front of the program at `address`, and the one that leads to it.
    fn proxies(&self, address: &str) -> (Server, Server) {
        let server = self.server.listen([
            "stcp",
            "proxy",
            "server",
            "--listen",
            &self.server.address(),
            "--connect",
            address,
            "--client-pin",
            &self.client_pin,
        ]);
        let client = self.client_proxy(&server);
        (client, server)
    }

    /// The proxy that leads to another one.
    fn client_proxy(&self, server: &Server) -> Server {
        let proxy = ["stcp", "proxy", "client", "--listen", "127.0.0.1:0"];
        let to = ["--connect", &server.address, "--pin", &self.server_pin];
        self.client.listen(proxy.iter().chain(&to))
    }
}

fn connect(server: &Server) -> TcpStream {
    try_connect(server).unwrap()
}

fn try_connect(server: &Server) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(&server.address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

fn read_all(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut all = Vec::new();
    let end = stream.read_to_end(&mut all);
    (all, end.err().map(|error| error.kind()))
}

#[test]
fn a_load_between_two_machines_that_know_each_others_keys() {
    let two = Two::new();
    let server = two.server.listen([
        "stcp",
        "echo-server",
        "--listen",
        "127.0.0.1:0",
        "--client-pin",
        &two.client_pin,
    ]);
    let load = |more: &[&str]| {
        let mut arguments = vec![
            "stcp",
            "echo-load",
            &server.address,
            "--json",
            "--clients",
            "5",
            "-t",
            "500ms",
            "--size",
            "4k",
        ];
        arguments.extend(more);
        two.client.run(arguments)
    };
    let record = load(&["--pin", &two.server_pin])
        .expect(0, &[])
        .record("towline.stcp.echo-load/1");
    assert!(record["requests"].as_u64().unwrap() > 50, "{record}");
    assert_eq!(record["errors"], 0);
    assert_eq!(record["connect_errors"], 0);
    assert_eq!(record["authentication"], "pinned");
    for name in [
        "requests_per_s",
        "mb_per_s",
        "avg_ms",
        "p50_ms",
        "p95_ms",
        "p99_ms",
    ] {
        assert!(record[name].as_f64().unwrap() > 0.0, "{name}: {record}");
    }

    // Whom to believe must be said, and whoever believes everybody must say that.
    load(&[]).expect(2, &["nothing says which server to believe"]);
    load(&["--pin", &two.client_pin]).expect(4, &["the peer is not who it should be"]);
    let record = load(&["--insecure"])
        .expect(0, &["WARNING: --insecure"])
        .record("towline.stcp.echo-load/1");
    let assurance = record["authentication"].as_str().unwrap();
    assert!(assurance.starts_with("UNAUTHENTICATED"), "{assurance}");

    // A client that the server does not know.
    let stranger = Scratch::new();
    stranger
        .run([
            "stcp",
            "echo-load",
            &server.address,
            "--pin",
            &two.server_pin,
            "-t",
            "200ms",
        ])
        .expect(4, &["the peer refused", "towline stcp key"]);
    server.signal(Signal::TERM);
    server.wait().expect(
        130,
        &["towline.stcp.echo-server/1", "none of our pins names it"],
    );
}

#[test]
fn a_server_that_lets_in_everybody_takes_clients_with_keys_of_their_own() {
    let two = Two::new();
    let listen = ["stcp", "echo-server", "--listen", "127.0.0.1:0"];
    let server = two
        .server
        .listen(listen.into_iter().chain(["--anonymous-clients"]));
    let pin = two.server.run(["stcp", "key"]).stdout;
    let load = ["stcp", "echo-load", &server.address, "-t", "200ms"];
    two.client
        .run(load.into_iter().chain(["--json", "--pin", pin.trim()]))
        .expect(0, &["\"errors\":0"]);
}

#[test]
fn certificates_of_a_development_authority_do_as_well() {
    let two = Two::new();
    let record = two
        .server
        .run(["cert", "dev", "--json"])
        .record("towline.cert.dev/2");
    let file = |name: &str| record[name].as_str().unwrap().to_owned();
    let (cert, key) = (file("certificate_file"), file("key_file"));
    let server = two.server.listen([
        "stcp",
        "echo-server",
        "--listen",
        "127.0.0.1:0",
        "--anonymous-clients",
        "--cert",
        &cert,
        "--key",
        &key,
    ]);
    for flags in [
        ["--cacert", &cert, "--name", "localhost"],
        [
            "--x509",
            "--pin",
            record["pin"].as_str().unwrap(),
            "--kx=x25519",
        ],
    ] {
        let mut arguments = vec![
            "stcp",
            "echo-load",
            &server.address,
            "-t",
            "200ms",
            "--json",
        ];
        arguments.extend(flags);
        two.client.run(arguments).expect(0, &["\"errors\":0"]);
    }
}

#[test]
fn without_saying_who_may_come_in_nothing_listens() {
    let machine = Scratch::new();
    machine
        .run(["stcp", "echo-server", "--listen", "127.0.0.1:0"])
        .expect(
            2,
            &[
                "nothing says which clients to let in",
                "--anonymous-clients",
            ],
        );
}

#[test]
fn what_is_sent_in_clear_has_no_records_that_a_kernel_could_make() {
    let machine = Scratch::new();
    for arguments in [
        &["stcp", "echo-server", "--plain", "--kernel"][..],
        &["stcp", "echo-load", "--plain", "--kernel", "127.0.0.1:1"],
    ] {
        let said = machine.run(arguments.iter().copied());
        said.expect(2, &["--kernel", "cannot be used with", "--plain"]);
    }
}

#[test]
fn an_unchanged_program_behind_two_proxies() {
    let two = Two::new();
    let program = two
        .server
        .listen(["stcp", "echo-server", "--plain", "--listen", "127.0.0.1:0"]);
    let (client, server) = two.proxies(&program.address);
    for size in ["100", "100k"] {
        two.client
            .run([
                "stcp",
                "echo-load",
                &client.address,
                "--plain",
                "--json",
                "-t",
                "500ms",
                "--clients",
                "10",
                "--size",
                size,
            ])
            .expect(0, &["\"errors\":0", "\"connect_errors\":0"]);
    }
    for proxy in [client, server] {
        proxy.signal(Signal::TERM);
        let record = proxy.wait().expect(130, &[]).record("towline.stcp.proxy/1");
        // Ten clients and one that looked whether somebody is there, twice.
        assert_eq!(record["accepted"], 22, "{record}");
        assert_eq!(record["cut"], 0, "{record}");
        assert_eq!(record["not_connected"], 0, "{record}");
        assert_eq!(record["refused"], 0, "{record}");
        assert!(
            record["bytes_encrypted"].as_u64().unwrap() > 100_000,
            "{record}"
        );
    }
}

/// A program at this address that tells every client its name.
fn program_named(address: &str, name: &'static str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            client.unwrap().write_all(name.as_bytes()).unwrap();
        }
    });
}

#[test]
fn a_proxy_finds_its_program_wherever_its_name_leads_now() {
    if !rustix::process::geteuid().is_root() {
        // The print macros would be captured.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED a name that moves: it needs root"
        );
        return;
    }
    let two = Two::new();
    let port = {
        let free = TcpListener::bind("127.0.0.2:0").unwrap();
        free.local_addr().unwrap().port()
    };
    program_named(&format!("127.0.0.2:{port}"), "old");
    program_named(&format!("127.0.0.3:{port}"), "new");
    let hosts = two.server.path("hosts");
    std::fs::write(&hosts, "127.0.0.2 program.test\n").unwrap();
    // In a mount namespace of its own, the names of this file are the machine's.
    let proxy = two.server.towline([
        "stcp",
        "proxy",
        "server",
        "--listen",
        "127.0.0.1:0",
        "--connect",
        &format!("program.test:{port}"),
        "--anonymous-clients",
    ]);
    let mut moved = Command::new("unshare");
    moved
        .args([
            "--mount",
            "sh",
            "-c",
            "mount --bind $HOSTS /etc/hosts && exec \"$@\"",
            "sh",
        ])
        .env("HOSTS", &hosts)
        .arg(proxy.get_program())
        .args(proxy.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, value) in proxy.get_envs() {
        match value {
            Some(value) => moved.env(name, value),
            None => moved.env_remove(name),
        };
    }
    let server = Server::start(moved);
    let client = two.client_proxy(&server);
    assert_eq!(read_all(&mut connect(&client)).0, b"old");
    std::fs::write(&hosts, "127.0.0.3 program.test\n").unwrap();
    assert_eq!(read_all(&mut connect(&client)).0, b"new");
}

/// What a program run by `stcp enter` hears when it asks for a socket of this family.
fn socket_of(family: &str, flags: &[&str]) -> String {
    let ask = format!(
        "import socket\ntry:\n socket.socket(socket.{family}, socket.SOCK_RAW, 255).close()\n print('made')\nexcept OSError as e: print(e.strerror)"
    );
    let scratch = Scratch::new();
    let arguments = ["stcp", "enter"].iter().chain(flags);
    let ended = scratch.run(arguments.chain(&["--", "python3", "-c", &ask]));
    ended.expect(0, &[]).stdout.trim().to_owned()
}

#[test]
fn what_the_guard_does_not_see_a_relayed_program_may_not_have() {
    if !rustix::process::geteuid().is_root() || socket_of("AF_PACKET", &[]) != "made" {
        // The print macros would be captured.
        let _ = writeln!(std::io::stderr(), "SKIPPED packet sockets: they need root");
        return;
    }
    let no_packets = ["--no-packets"];
    // The user-relay's, whose program may be root's as well.
    let by_shim = ["--shim", "/no/shim"];
    for family in ["AF_PACKET", "AF_RDS", "AF_TIPC"] {
        let relayed = socket_of(family, &no_packets);
        assert_eq!(relayed, "Operation not permitted", "{family}");
        let by_agent = socket_of(family, &by_shim);
        assert_eq!(by_agent, "Protocol not supported", "{family}");
    }
    // ICMP stays, say.
    assert_eq!(socket_of("AF_INET", &no_packets), "made");
}

#[test]
fn ends_and_cuts_pass_through_both_proxies_as_what_they_are() {
    let two = Two::new();
    let program = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, server) = two.proxies(&program.local_addr().unwrap().to_string());

    // Half-close: the answer comes after the question's end.
    let mut asking = connect(&client);
    asking.write_all(b"question").unwrap();
    asking.shutdown(Shutdown::Write).unwrap();
    let (mut answering, _) = program.accept().unwrap();
    assert_eq!(read_all(&mut answering), (b"question".to_vec(), None));
    let answer = vec![7; 1 << 20];
    answering.write_all(&answer).unwrap();
    answering.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut asking), (answer, None));

    // A reset on one side is one on the other, in both directions.
    for from_program in [true, false] {
        let mut asking = connect(&client);
        asking.write_all(b"x").unwrap();
        let (mut answering, _) = program.accept().unwrap();
        answering.read_exact(&mut [0]).unwrap();
        let (gone, mut left) = match from_program {
            true => (answering, asking),
            false => (asking, answering),
        };
        socket2::SockRef::from(&gone)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(gone);
        assert_eq!(read_all(&mut left).1, Some(ErrorKind::ConnectionReset));
    }

    // A proxy that dies cuts what it carried: no end that looks like one.
    let mut asking = connect(&client);
    asking.write_all(b"x").unwrap();
    let (mut answering, _) = program.accept().unwrap();
    answering.read_exact(&mut [0]).unwrap();
    answering.write_all(b"half an ans").unwrap();
    let mut part = [0; 11];
    asking.read_exact(&mut part).unwrap();
    server.kill();
    assert_eq!(read_all(&mut asking).1, Some(ErrorKind::ConnectionReset));

    // And nobody there is a reset too, not an empty answer.
    let mut asking = connect(&client);
    assert_eq!(read_all(&mut asking).1, Some(ErrorKind::ConnectionReset));
    client.signal(Signal::TERM);
    let record = client
        .wait()
        .expect(130, &[])
        .record("towline.stcp.proxy/1");
    assert_eq!(record["ended"], 1, "{record}");
    assert_eq!(record["cut"], 3, "{record}");
    assert_eq!(record["not_connected"], 1, "{record}");
}

#[test]
fn a_plaintext_client_gets_no_further_than_the_handshake() {
    let two = Two::new();
    let program = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_client, server) = two.proxies(&program.local_addr().unwrap().to_string());
    let mut clear = connect(&server);
    clear.write_all(b"PING in clear\r\n").unwrap();
    let (heard, _) = read_all(&mut clear);
    assert_eq!(heard, b"", "no answer in clear");
    program.set_nonblocking(true).unwrap();
    assert_eq!(program.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    server.signal(Signal::TERM);
    let ended = server
        .wait()
        .expect(130, &["does not speak TLS", "PING in clear"]);
    assert_eq!(ended.record("towline.stcp.proxy/1")["refused"], 1);
}

#[test]
fn a_proxy_whose_program_is_away_says_so_a_few_times_a_second() {
    const MANY: usize = 300;
    let two = Two::new();
    let (client, server) = two.proxies(&two.client.address());
    let began = Instant::now();
    // The reset may come before `connect` returns.
    let streams: Vec<_> = (0..MANY).map(|_| try_connect(&client)).collect();
    for stream in streams {
        match stream {
            Ok(mut stream) => assert_eq!(read_all(&mut stream).0, b""),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    let most = 10 * (began.elapsed().as_secs() as usize + 2);
    server.signal(Signal::TERM);
    let ended = server.wait().expect(130, &[]);
    let record = ended.record("towline.stcp.proxy/1");
    assert_eq!(record["not_connected"], MANY, "{record}");
    let lines = ended.stderr.matches("not connected: ").count();
    assert!(
        (1..=most.min(MANY - 1)).contains(&lines),
        "{lines} lines, at most {most}"
    );
}

#[test]
fn a_proxy_that_is_told_to_stop_lets_connections_end() {
    let two = Two::new();
    let program = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, server) = two.proxies(&program.local_addr().unwrap().to_string());
    let mut asking = connect(&client);
    asking.write_all(b"question").unwrap();
    let (mut answering, _) = program.accept().unwrap();
    answering.read_exact(&mut [0; 8]).unwrap();
    server.signal(Signal::TERM);
    client.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    answering.write_all(b"answer").unwrap();
    drop(answering);
    asking.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut asking), (b"answer".to_vec(), None));
    for proxy in [client, server] {
        let record = proxy.wait().expect(130, &[]).record("towline.stcp.proxy/1");
        assert_eq!(record["ended"], 1, "{record}");
        assert_eq!(record["left"], 0, "{record}");
    }
}
