//! Sessions and streams come and go, and leave nothing behind. Alone in its process: it looks at its size.

mod common;

use common::{loopback, options};
use towline::config::{self, ClientAuth, Trust};
use towline::webtransport::{Config, Connection, Server, Session, connect, generate_certificate};
use towline::{Endpoint, http3};

const STREAMS: u32 = 100_000;
const SESSIONS: u32 = 10_000;

/// KiB of memory that the process has in use.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    value.unwrap().parse().unwrap()
}

/// A session at both ends, and the connection at both ends.
async fn connected(server: &Endpoint, config: &config::ClientConfig) -> [(Connection, Session); 2] {
    let door = Server::new(server).unwrap();
    let client = Endpoint::builder().webtransport(Config::default());
    let client = client.bind(loopback()).unwrap();
    let url = format!("https://{}/", server.local_addr());
    let accepted = async {
        let connection = door.accept().await.unwrap();
        let session = connection.accept().await.unwrap().accept().unwrap();
        (connection, session)
    };
    let (near, far) = tokio::join!(connect(&client, &url, config), accepted);
    let near = near.unwrap();
    let http = http3::Connection::new(near.transport().clone()).unwrap();
    [(Connection::new(http), near), far]
}

async fn a_stream(near: &Session, far: &Session) {
    let mut send = near.open_uni().await.unwrap();
    send.write_all(b"ahoy").await.unwrap();
    send.finish().unwrap();
    let mut recv = far.accept_uni().await.unwrap();
    assert_eq!(recv.read_to_end(4).await.unwrap(), b"ahoy");
}

async fn a_session(near: &Connection, far: &Connection, is_dropped: bool) {
    let head = http::Request::get("https://localhost/").body(()).unwrap();
    let accepted = async { far.accept().await.unwrap().accept().unwrap() };
    let (near, far) = tokio::join!(near.open(head, &[]), accepted);
    let near = near.unwrap();
    let (mut send, _recv) = near.open_bi().await.unwrap();
    send.write_all(b"ahoy").await.unwrap();
    near.send_datagram("ahoy".into()).unwrap();
    match is_dropped {
        true => drop(near),
        false => near.close(1, "enough"),
    }
    far.closed().await;
}

#[tokio::test]
async fn sessions_and_streams_that_are_over_leave_no_memory_behind() {
    let identity = generate_certificate(&["localhost"], config::unix_now()).unwrap();
    let options = options().alpn(vec![http3::ALPN.into()]);
    let config = config::server(&identity, &ClientAuth::None, &options).unwrap();
    let server = Endpoint::builder()
        .server(config)
        .webtransport(Config::default());
    let server = server.bind(loopback()).unwrap();
    let trust = Trust::Pinned(vec![identity.certificate_pin().unwrap().into()]);
    let config = config::client(&trust, None, &options).unwrap();
    let [(near, session), (far, far_session)] = connected(&server, &config).await;
    let mut early = 0;
    for turn in 0..STREAMS {
        if turn == STREAMS / 10 {
            early = resident();
        }
        a_stream(&session, &far_session).await;
    }
    let late = resident();
    assert!(
        late <= early + early / 20,
        "streams: {early} KiB, then {late} KiB"
    );
    for turn in 0..SESSIONS {
        if turn == SESSIONS / 10 {
            early = resident();
        }
        a_session(&near, &far, turn % 2 == 0).await;
    }
    let late = resident();
    assert!(
        late <= early + early / 20,
        "sessions: {early} KiB, then {late} KiB"
    );
}
