//! A chat through a relay: two clients talk, and a server passes on what each says.
//!
//! `cargo run -p towline --example relay_chat`
//!
//! Each client has one connection with one stream, on which a line is a message. The server gives each
//! line to everybody but its author. A client that does not read what it is sent misses lines and holds
//! nobody up: the room keeps a few lines, and the window of its stream bounds the rest.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::sync::broadcast::{self, error::RecvError};
use towline::config::{self, ClientAuth, ClientConfig, Identity, Options, Trust};
use towline::identity::Pin;
use towline::{Connection, Endpoint, RecvStream, SendStream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What everybody hears: who said it, and what.
type Line = (String, String);

/// Lines that the room keeps for who is slow.
const KEPT: usize = 64;

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options::new("chat");
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let config = config::server(&identity, &ClientAuth::None, &options)?;
    let server = Endpoint::server(loopback, config)?;
    let address = server.local_addr();
    tokio::spawn(run_room(server));

    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let config = config::client(&trust, None, &options)?;
    let mut alice = Client::join(address, &config, "alice").await?;
    let mut bob = Client::join(address, &config, "bob").await?;

    alice.say("is anybody out there?").await?;
    assert_eq!(bob.hear().await?, "alice: is anybody out there?");
    bob.say("reading you, alice").await?;
    bob.say("over").await?;
    assert_eq!(alice.hear().await?, "bob: reading you, alice");
    assert_eq!(alice.hear().await?, "bob: over");

    bob.leave().await?;
    assert_eq!(alice.hear().await?, "bob: left");
    alice.leave().await?;
    println!("everybody heard everything");
    Ok(())
}

/// Somebody who chats.
struct Client {
    endpoint: Endpoint,
    connection: Connection,
    send: SendStream,
    lines: Lines<BufReader<RecvStream>>,
}

impl Client {
    async fn join(address: SocketAddr, config: &ClientConfig, name: &str) -> Outcome<Self> {
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let connection = endpoint.connect(address, "localhost", config).await?;
        let (mut send, recv) = connection.open_bi().await?;
        send.write_all(format!("{name}\n").as_bytes()).await?;
        let mut client = Self {
            endpoint,
            connection,
            send,
            lines: BufReader::new(recv).lines(),
        };
        // From here on nothing is missed.
        assert_eq!(client.hear().await?, "welcome");
        Ok(client)
    }

    async fn say(&mut self, text: &str) -> Outcome<()> {
        self.send.write_all(format!("{text}\n").as_bytes()).await?;
        Ok(())
    }

    async fn hear(&mut self) -> Outcome<String> {
        let line = self.lines.next_line().await?.ok_or("the room is closed")?;
        println!("{line}");
        Ok(line)
    }

    /// Waits until all that was said is with the server, then goes.
    async fn leave(mut self) -> Outcome<()> {
        self.send.finished().await?;
        // The server ends its side when it has read the last line.
        while self.lines.next_line().await?.is_some() {}
        self.connection.close(0, b"bye");
        self.endpoint.wait_idle().await;
        Ok(())
    }
}

async fn run_room(server: Endpoint) {
    let (room, _) = broadcast::channel(KEPT);
    while let Some(connection) = server.accept().await {
        tokio::spawn(serve(connection, room.clone()));
    }
}

/// One client: its first line is its name, each other one is for the room.
async fn serve(connection: Connection, room: broadcast::Sender<Line>) -> Outcome<()> {
    let (mut send, recv) = connection.accept_bi().await?;
    let mut lines = BufReader::new(recv).lines();
    let name = lines.next_line().await?.ok_or("a client without a name")?;
    let mut heard = room.subscribe();
    send.write_all(b"welcome\n").await?;
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(text) => {
                    let _ = room.send((name.clone(), text));
                }
                None => break,
            },
            line = heard.recv() => match line {
                Ok((author, text)) if author != name => {
                    send.write_all(format!("{author}: {text}\n").as_bytes()).await?;
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    send.write_all(format!("{missed} lines missed\n").as_bytes()).await?;
                }
                Err(RecvError::Closed) => break,
            },
        }
    }
    let _ = room.send((name, "left".to_owned()));
    send.finished().await?;
    Ok(())
}
