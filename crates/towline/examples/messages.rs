//! Messages through a middle node: metadata first, two readers at different speeds, and a pipe.
//!
//! `cargo run --example messages`
//!
//! A sender, a relay and a receiver on the loopback interface, each with an endpoint of its own.
//! The relay looks at the metadata, forwards the message while it arrives, and reads along.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use towline::config::{self, ClientAuth, ClientConfig, Identity, Options, ServerConfig, Trust};
use towline::identity::Pin;
use towline::message::{MessageOptions, MessageReceiver, MessageSender};
use towline::{Connection, Endpoint};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const LENGTH: u64 = 3_000_000;

#[tokio::main]
async fn main() -> Outcome<()> {
    let (client, server) = configs()?;
    let (to_relay, at_relay, _sending) = link(&client, &server).await?;
    let (to_receiver, at_receiver, _receiving) = link(&client, &server).await?;

    let sender = tokio::spawn(send(to_relay));
    let relay = tokio::spawn(relay(at_relay, to_receiver));
    receive(at_receiver).await?;
    relay.await??;
    sender.await??;
    Ok(())
}

/// Declares metadata and length, then writes in pieces.
async fn send(connection: Connection) -> Outcome<()> {
    let sender = MessageSender::new(&connection);
    let options = MessageOptions::new("chart of the Skagerrak").length(LENGTH);
    let mut message = sender.open(options).await?;
    let piece = [7; 50_000];
    for _ in 0..LENGTH / 50_000 {
        message.write_all(&piece).await?;
    }
    // Small and urgent: it overtakes what still waits of the chart.
    let options = MessageOptions::new("gale warning").priority(1);
    let mut urgent = sender.open(options).await?;
    urgent.write_all(b"SW 9").await?;
    urgent.finish()?;
    message.delivered().await?;
    urgent.delivered().await?;
    println!("sender: both messages are with the relay");
    // It has them, and is still busy with them: it says when it is done.
    connection.closed().await;
    Ok(())
}

/// Forwards every message to the next node, and counts the bytes of large ones on the way.
async fn relay(from: Connection, next: Connection) -> Outcome<()> {
    let mut receiver = MessageReceiver::new(&from);
    let mut pipes = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let message = receiver.accept().await?;
        let name = String::from_utf8_lossy(message.metadata()).into_owned();
        println!("relay: `{name}` arrives, {:?} bytes", message.length());
        let beside = message.length().map(|_| message.clone().into_reader());
        let next = next.clone();
        pipes.spawn(async move {
            let count = async {
                let mut bytes = 0;
                if let Some(mut reader) = beside {
                    while let Some(chunk) = reader.next_chunk().await? {
                        bytes += chunk.len();
                    }
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(bytes)
            };
            let (piped, counted) = tokio::join!(message.pipe_to(&next), count);
            println!(
                "relay: `{name}`: {} bytes on, {} read along",
                piped?, counted?
            );
            Outcome::Ok(())
        });
    }
    while let Some(pipe) = pipes.join_next().await {
        pipe??;
    }
    // What was forwarded is delivered when the receiver closes.
    next.closed().await;
    Ok(())
}

/// Two readers of one message: one in order, one that takes fragments as they arrive.
async fn receive(connection: Connection) -> Outcome<()> {
    let mut receiver = MessageReceiver::new(&connection);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let message = receiver.accept().await?;
        let name = String::from_utf8_lossy(message.metadata()).into_owned();
        let length = message.length();
        tasks.spawn(async move {
            let mut fragments = message.clone().into_fragments();
            let take_fragments = async {
                let (mut count, mut early, mut next) = (0, 0, 0);
                while let Some(fragment) = fragments.next().await? {
                    count += 1;
                    early += u32::from(fragment.offset > next);
                    next = fragment.offset + fragment.data.len() as u64;
                }
                Ok::<_, towline::message::MessageError>((count, early))
            };
            let in_order = message.read_to_end(LENGTH as usize);
            let (whole, fragments) = tokio::join!(in_order, take_fragments);
            let (whole, (count, early)) = (whole?, fragments?);
            println!(
                "receiver: `{name}`: {} bytes in order; {count} fragments, {early} of them early",
                whole.len()
            );
            match length {
                Some(length) => {
                    assert!(whole.len() as u64 == length && whole.iter().all(|b| *b == 7))
                }
                None => assert_eq!(whole, b"SW 9"),
            }
            Outcome::Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    connection.close(0, b"thanks");
    Ok(())
}

/// A connection between two new endpoints: the client's end, the server's, and the endpoints.
async fn link(
    client: &ClientConfig,
    server: &ServerConfig,
) -> Outcome<(Connection, Connection, (Endpoint, Endpoint))> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Endpoint::server(loopback, server.clone())?;
    let near = Endpoint::client(loopback)?;
    let connect = near.connect(server.local_addr(), "localhost", client);
    let (connected, accepted) = tokio::join!(connect, server.accept());
    let accepted = accepted.ok_or("the endpoint is closed")?;
    Ok((connected?, accepted, (near, server)))
}

fn configs() -> Outcome<(ClientConfig, ServerConfig)> {
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let options = Options::new("messages");
    Ok((
        config::client(&trust, None, &options)?,
        config::server(&identity, &ClientAuth::None, &options)?,
    ))
}
