//! Echo: a server sends back what comes on each stream.
//!
//! `cargo run -p towline --example echo`
//!
//! The pair `echo_server` and `echo_client` does the same from two machines.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use towline::config::{self, ClientAuth, Identity, Options, Trust};
use towline::identity::Pin;
use towline::{Endpoint, RecvStream, SendStream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options::new("echo");

    // The server makes its certificate itself. Clients know it by the hash of its key.
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let config = config::server(&identity, &ClientAuth::None, &options)?;
    let server = Endpoint::server(loopback, config)?;
    let address = server.local_addr();
    tokio::spawn(serve(server));

    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let config = config::client(&trust, None, &options)?;
    let client = Endpoint::client(loopback)?;
    let connection = client.connect(address, "localhost", &config).await?;

    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(b"ahoy").await?;
    // That was all. A stream that is dropped without this is reset.
    send.finish()?;
    let echo = recv.read_to_end(1000).await?;
    println!("{}", String::from_utf8_lossy(&echo));
    assert_eq!(echo, b"ahoy");

    connection.close(0, b"done");
    // The notice is sent by the endpoint's driver, which ends with the runtime.
    client.wait_idle().await;
    Ok(())
}

/// Takes every connection, and every stream of it, at the same time.
async fn serve(server: Endpoint) {
    while let Some(connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok((send, recv)) = connection.accept_bi().await {
                tokio::spawn(echo(send, recv));
            }
        });
    }
}

async fn echo(mut send: SendStream, mut recv: RecvStream) -> Outcome<()> {
    while let Some(chunk) = recv.read_chunk(64 * 1024).await? {
        send.write_chunk(chunk).await?;
    }
    send.finish()?;
    Ok(())
}
