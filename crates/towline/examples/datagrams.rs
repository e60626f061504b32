//! Datagrams: values of which only the newest counts, beside a stream for what must arrive.
//!
//! `cargo run -p towline --example datagrams`
//!
//! A datagram is sent once: encrypted and under congestion control as everything else, but what is lost
//! stays lost, and nothing behind it waits. It fits into one packet or is refused.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use towline::config::{self, ClientAuth, Identity, Options, Trust};
use towline::identity::Pin;
use towline::{Connection, Endpoint};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const READINGS: u32 = 100;

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options::new("depth");
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let config = config::server(&identity, &ClientAuth::None, &options)?;
    let server = Endpoint::server(loopback, config)?;
    let address = server.local_addr();
    let watching = tokio::spawn(async move {
        let connection = server.accept().await.ok_or("the endpoint is closed")?;
        watch(connection).await
    });

    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let config = config::client(&trust, None, &options)?;
    let client = Endpoint::client(loopback)?;
    let connection = client.connect(address, "localhost", &config).await?;

    let longest = connection
        .max_datagram_len()
        .ok_or("the server takes no datagrams")?;
    println!("a datagram holds up to {longest} bytes");
    for reading in 0..READINGS {
        // What waits here is old by the time it leaves: where there is no room, this one is left out.
        if connection.datagram_send_buffer_space() >= size_of::<u32>() {
            connection.send_datagram(Bytes::copy_from_slice(&reading.to_be_bytes()))?;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // How the voyage went must arrive, so it goes on a stream.
    let mut report = connection.open_uni().await?;
    report.write_all(b"anchored").await?;
    report.finished().await?;

    connection.close(0, b"done");
    let (count, newest, report) = watching.await??;
    println!("{count} readings of {READINGS} arrived, the newest is {newest:?}; {report}");
    assert!(count > 0 && count <= READINGS);
    assert!(newest.is_some_and(|newest| newest < READINGS));
    assert_eq!(report, "anchored");
    client.wait_idle().await;
    Ok(())
}

/// Takes readings until the report comes: how many there were, the newest, and the report.
async fn watch(connection: Connection) -> Outcome<(u32, Option<u32>, String)> {
    let (mut count, mut newest) = (0, None);
    loop {
        tokio::select! {
            datagram = connection.read_datagram() => {
                let reading = u32::from_be_bytes(datagram?[..].try_into()?);
                count += 1;
                // Datagrams may overtake each other.
                newest = newest.max(Some(reading));
            }
            stream = connection.accept_uni() => {
                let report = stream?.read_to_end(1000).await?;
                // Whoever leaves first may leave before the other knows what arrived.
                connection.closed().await;
                return Ok((count, newest, String::from_utf8(report)?));
            }
        }
    }
}
