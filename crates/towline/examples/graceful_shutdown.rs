//! A server that ends in good order: nobody new gets in, what runs is finished, the rest is closed.
//!
//! Three clients on the loopback interface: one is in the middle of a request that takes a while when
//! the server begins to shut down, one keeps its connection and does nothing, one comes too late.
//!
//! `cargo run -p towline --example graceful_shutdown`
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::sleep;
use towline::config::{self, ClientAuth, ClientConfig, Identity, Options, ServerConfig, Trust};
use towline::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What is left after this long is closed.
const GRACE: Duration = Duration::from_secs(3);
/// How long the server takes for an answer.
const WORK: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let (client, server) = configs()?;
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Endpoint::server(loopback, server)?;
    let address = server.local_addr();
    let accepting = tokio::spawn(accept(server.clone()));
    let endpoint = Endpoint::client(loopback)?;

    let busy = endpoint.connect(address, "localhost", &client).await?;
    let idle = endpoint.connect(address, "localhost", &client).await?;
    let request = tokio::spawn(ask(busy));
    sleep(WORK / 5).await;

    // In a service: once the signal to end has come.
    println!("server: shutting down");
    let shutdown = server.shutdown(GRACE, 0, b"the server ends");
    let clients = async {
        let late = endpoint.connect(address, "localhost", &client).await;
        println!("late client: {}", late.expect_err("it got in"));
        let answer = request.await??;
        assert_eq!(answer, "ARE YOU STILL THERE?");
        println!("busy client: the answer is {answer}");
        let end = idle.closed().await;
        assert!(matches!(end, ConnectionError::ClosedByPeer(_)), "{end}");
        println!("idle client: {end}");
        Outcome::Ok(())
    };
    let ((), seen) = tokio::join!(shutdown, clients);
    println!("server: every connection is gone");
    accepting.await?;
    seen
}

/// Serves until the endpoint shuts down and nobody is left to accept.
async fn accept(server: Endpoint) {
    while let Some(connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok((send, recv)) = connection.accept_bi().await {
                tokio::spawn(answer(send, recv));
            }
        });
    }
    println!("server: accepts nobody any more");
}

async fn answer(mut send: SendStream, mut recv: RecvStream) -> Outcome<()> {
    let question = recv.read_to_end(1000).await?;
    sleep(WORK).await;
    send.write_all(&question.to_ascii_uppercase()).await?;
    send.finish()?;
    Ok(())
}

/// Asks one question, and closes the connection with the answer in hand.
async fn ask(connection: Connection) -> Outcome<String> {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(b"are you still there?").await?;
    send.finish()?;
    let answer = recv.read_to_end(1000).await?;
    connection.close(0, b"thanks");
    Ok(String::from_utf8(answer)?)
}

fn configs() -> Outcome<(ClientConfig, ServerConfig)> {
    let identity = Identity::generate_raw_key()?;
    let trust = Trust::RawKeys(vec![identity.key_pin()]);
    let options = Options::new("shout");
    Ok((
        config::client(&trust, None, &options)?,
        config::server(&identity, &ClientAuth::None, &options)?,
    ))
}
