//! Two protocols on one UDP port: echo, and services by name, which is a protocol of its own.
//!
//! `cargo run -p towline --example services`
//!
//! `protocol.rs` beside this file stands between connections and their handles: it reads which
//! service a stream is for, and hands the stream over.
#![allow(
    clippy::print_stdout,
    unreachable_pub,
    dead_code,
    reason = "an example talks to its user, and the module is a test's as well"
)]

mod protocol;

use std::error::Error;
use std::net::SocketAddr;

use protocol::Services;
use towline::config::{self, ClientAuth, Identity, Options, Trust};
use towline::engine::{ProtocolConfig, TransportConfig};
use towline::identity::Pin;
use towline::{Connection, Endpoint, RecvStream, SendStream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let config = config::server(&identity, &ClientAuth::None, &Options::new("echo"))?;
    // Services may have many streams at a time; echo has what the options say.
    let many = TransportConfig::default().max_concurrent_bidi_streams(10_000);
    let config = config.protocols([ProtocolConfig::new(protocol::ALPN).transport(many)]);
    let server = Endpoint::builder()
        .server(config)
        .protocol(protocol::ALPN, |_| {
            Box::new(Services::new(&["upper", "lower"]))
        })
        .bind(loopback)?;
    let address = server.local_addr();
    let services = server.door(protocol::ALPN.as_bytes()).expect("made above");
    tokio::spawn(async move {
        while let Some(connection) = server.accept().await {
            tokio::spawn(serve_echo(connection));
        }
    });
    tokio::spawn(async move {
        while let Some(connection) = services.accept().await {
            tokio::spawn(serve(connection.clone(), 0, |byte| {
                byte.to_ascii_uppercase()
            }));
            tokio::spawn(serve(connection, 1, |byte| byte.to_ascii_lowercase()));
        }
    });

    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let client = Endpoint::client(loopback)?;
    let config = config::client(&trust, None, &Options::new("echo"))?;
    let connection = client.connect(address, "localhost", &config).await?;
    println!("echo: {}", ask(connection.open_bi().await?).await?);
    connection.close(0, b"done");

    let config = config::client(&trust, None, &Options::new(protocol::ALPN))?;
    let connection = client.connect(address, "localhost", &config).await?;
    for name in ["upper", "lower"] {
        println!(
            "{name}: {}",
            ask(protocol::open(&connection, name).await?).await?
        );
    }
    connection.close(0, b"done");
    client.wait_idle().await;
    Ok(())
}

async fn serve_echo(connection: Connection) -> Outcome<()> {
    loop {
        answer(connection.accept_bi().await?, |byte| byte).await?;
    }
}

async fn serve(connection: Connection, service: usize, change: fn(u8) -> u8) -> Outcome<()> {
    loop {
        answer(protocol::accept(&connection, service).await?, change).await?;
    }
}

async fn answer(stream: (SendStream, RecvStream), change: impl Fn(u8) -> u8) -> Outcome<()> {
    let (mut send, mut recv) = stream;
    let mut bytes = recv.read_to_end(1000).await?;
    bytes.iter_mut().for_each(|byte| *byte = change(*byte));
    send.write_all(&bytes).await?;
    send.finish()?;
    Ok(())
}

async fn ask(stream: (SendStream, RecvStream)) -> Outcome<String> {
    let (mut send, mut recv) = stream;
    send.write_all(b"Ahoy").await?;
    send.finish()?;
    Ok(String::from_utf8(recv.read_to_end(1000).await?)?)
}
