//! Request and response: each question has a stream of its own, and its answer comes back on it.
//!
//! `cargo run -p towline --example request_response`
//!
//! A stream costs no round trip, so a question need not wait for the one before it. A question that
//! cannot be answered is refused with a code, which ends that stream and no other.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use towline::config::{self, ClientAuth, Identity, Options, Trust};
use towline::identity::Pin;
use towline::{Connection, Endpoint, ReadError, ReadToEndError, RecvStream, SendStream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The application's code for "no such harbour". Codes are between the two ends of a protocol.
const UNKNOWN: u64 = 404;
/// The longest question and the longest answer, bytes.
const LIMIT: usize = 1000;

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options::new("tides");
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let config = config::server(&identity, &ClientAuth::None, &options)?;
    let server = Endpoint::server(loopback, config)?;
    let address = server.local_addr();
    tokio::spawn(serve(server));

    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let config = config::client(&trust, None, &options)?;
    let client = Endpoint::client(loopback)?;
    let connection = client.connect(address, "localhost", &config).await?;

    // All three are under way at once.
    let (brest, dover, atlantis) = tokio::join!(
        ask(&connection, "Brest"),
        ask(&connection, "Dover"),
        ask(&connection, "Atlantis"),
    );
    assert_eq!(brest?.as_deref(), Some("6.1 m"));
    assert_eq!(dover?.as_deref(), Some("5.9 m"));
    assert_eq!(atlantis?, None);
    println!("two answers, and one harbour that nobody knows");

    connection.close(0, b"done");
    client.wait_idle().await;
    Ok(())
}

/// The answer to one question; `None` if the server knows none.
async fn ask(connection: &Connection, harbour: &str) -> Outcome<Option<String>> {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(harbour.as_bytes()).await?;
    send.finish()?;
    match recv.read_to_end(LIMIT).await {
        Ok(answer) => Ok(Some(String::from_utf8(answer)?)),
        Err(ReadToEndError::Read(ReadError::Reset(UNKNOWN))) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn serve(server: Endpoint) {
    while let Some(connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok((send, recv)) = connection.accept_bi().await {
                tokio::spawn(answer(send, recv));
            }
        });
    }
}

async fn answer(mut send: SendStream, mut recv: RecvStream) -> Outcome<()> {
    // The end of the stream is the end of the question; a longer one is an error here, and its stream
    // is reset when `send` is dropped.
    let question = recv.read_to_end(LIMIT).await?;
    let height = match question.as_slice() {
        b"Brest" => "6.1 m",
        b"Dover" => "5.9 m",
        _ => {
            send.reset(UNKNOWN);
            return Ok(());
        }
    };
    send.write_all(height.as_bytes()).await?;
    send.finish()?;
    Ok(())
}
