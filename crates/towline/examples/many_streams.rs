//! Many streams: a thousand tasks share a connection, each with a stream of its own.
//!
//! `cargo run -p towline --example many_streams`
//!
//! The server says how many streams may be open at once. Who wants one more waits in `open_bi`, first
//! come, first served, until one has ended or the server permits more.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use tokio::task::JoinSet;
use towline::config::{self, ClientAuth, Identity, Options, TransportConfig, Trust};
use towline::identity::Pin;
use towline::{Connection, Endpoint, RecvStream, SendStream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const STREAMS: u64 = 1000;

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let transport = TransportConfig::default().max_concurrent_bidi_streams(10);
    let options = Options::new("squares").transport(transport);
    let config = config::server(&identity, &ClientAuth::None, &options)?;
    let server = Endpoint::server(loopback, config)?;
    let address = server.local_addr();
    tokio::spawn(async move {
        while let Some(connection) = server.accept().await {
            tokio::spawn(serve(connection));
        }
    });

    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let config = config::client(&trust, None, &Options::new("squares"))?;
    let client = Endpoint::client(loopback)?;
    let connection = client.connect(address, "localhost", &config).await?;

    let mut tasks = JoinSet::new();
    for number in 0..STREAMS {
        let connection = connection.clone();
        tasks.spawn(async move { square(&connection, number).await });
    }
    let mut sum = 0;
    while let Some(task) = tasks.join_next().await {
        sum += task??;
    }
    println!(
        "{STREAMS} streams, {:?} a round trip, sum {sum}",
        connection.rtt()
    );
    assert_eq!(sum, (0..STREAMS).map(|number| number * number).sum::<u64>());

    connection.close(0, b"done");
    client.wait_idle().await;
    Ok(())
}

/// Asks the server for the square of a number.
async fn square(connection: &Connection, number: u64) -> Outcome<u64> {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&number.to_be_bytes()).await?;
    send.finish()?;
    let answer = recv.read_to_end(8).await?;
    Ok(u64::from_be_bytes(answer[..].try_into()?))
}

async fn serve(connection: Connection) {
    let mut served = 0;
    while let Ok((send, recv)) = connection.accept_bi().await {
        tokio::spawn(answer(send, recv));
        served += 1;
        if served == STREAMS / 2 {
            // A client with so much to ask may have more at once. It is told now.
            connection.set_max_concurrent_bidi_streams(100);
        }
    }
}

async fn answer(mut send: SendStream, mut recv: RecvStream) -> Outcome<()> {
    let number = recv.read_to_end(8).await?;
    let number = u64::from_be_bytes(number[..].try_into()?);
    send.write_all(&(number * number).to_be_bytes()).await?;
    send.finish()?;
    Ok(())
}
