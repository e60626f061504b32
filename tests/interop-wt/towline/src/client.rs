//! The client: the five cases, each on a connection of its own.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use towline::config::{self, Identity, Trust};
use towline::engine::ClientConfig;
use towline::webtransport::{Config, Error as SessionError, Session, connect};
use towline::{Endpoint, RecvStream, SendStream};

use crate::Error;

const PATIENCE: Duration = Duration::from_secs(15);
/// For what was closed to leave.
const PARTING: Duration = Duration::from_millis(300);
const TRANSFER: usize = 1 << 20;
const DATAGRAMS: u32 = 1000;
/// Datagrams on their way at a time.
const WINDOW: u32 = 16;

struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    address: SocketAddr,
}

pub(crate) async fn run(identity: &Identity, address: SocketAddr) -> Result<(), Error> {
    let pin = identity.certificate_pin().ok_or("no certificate")?;
    let trust = Trust::Pinned(vec![pin.into()]);
    let endpoint = Endpoint::builder().webtransport(Config::default());
    let client = Client {
        endpoint: endpoint.bind((Ipv4Addr::LOCALHOST, 0).into())?,
        config: config::client(&trust, None, &crate::options())?,
        address,
    };
    report("handshake", handshake(&client)).await;
    report("bidirectional", bidirectional(&client)).await;
    report("unidirectional", unidirectional(&client)).await;
    report("datagrams", datagrams(&client)).await;
    report("close", close(&client)).await;
    Ok(())
}

async fn report(case: &str, outcome: impl Future<Output = Result<String, Error>>) {
    match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(Ok(detail)) => println!("{case} ok {detail}"),
        Ok(Err(error)) => println!("{case} failed {error}"),
        Err(_) => println!("{case} failed no end within {PATIENCE:?}"),
    }
}

impl Client {
    async fn session(&self, path: &str) -> Result<Session, Error> {
        let url = format!("https://localhost:{}{path}", self.address.port());
        Ok(connect(&self.endpoint, &url, &self.config).await?)
    }
}

async fn handshake(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    Ok(format!("{:?}", session.dialect()))
}

async fn bidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let (send, recv) = session.open_bi().await?;
    let sent = tokio::spawn(send_all(send));
    compare(recv).await?;
    sent.await??;
    Ok(format!("{TRANSFER} bytes"))
}

async fn unidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let send = session.open_uni().await?;
    let sent = tokio::spawn(send_all(send));
    compare(session.accept_uni().await?).await?;
    sent.await??;
    Ok(format!("{TRANSFER} bytes"))
}

async fn send_all(mut send: SendStream) -> Result<(), Error> {
    send.write_all(&pattern()).await?;
    send.finish()?;
    Ok(())
}

async fn compare(mut recv: RecvStream) -> Result<(), Error> {
    match recv.read_to_end(TRANSFER).await? == pattern() {
        true => Ok(()),
        false => Err("other bytes came back".into()),
    }
}

/// Bytes in which blocks differ from each other.
fn pattern() -> Vec<u8> {
    let byte = |i: usize| (i ^ (i >> 8).wrapping_mul(7) ^ (i >> 16).wrapping_mul(31)) as u8;
    (0..TRANSFER).map(byte).collect()
}

async fn datagrams(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let mut back = BTreeSet::new();
    let mut sent = 0;
    while sent < DATAGRAMS || (back.len() as u32) < sent {
        while sent < DATAGRAMS && sent - (back.len() as u32) < WINDOW {
            let mut datagram = vec![b'.'; 100];
            datagram[..4].copy_from_slice(&sent.to_be_bytes());
            session.send_datagram(datagram.into())?;
            sent += 1;
        }
        back.insert(number(&session.read_datagram().await?)?);
    }
    Ok(format!("{} of {DATAGRAMS}", back.len()))
}

fn number(datagram: &Bytes) -> Result<u32, Error> {
    let (number, rest) = datagram.split_first_chunk().ok_or("a short datagram")?;
    if rest.len() != 96 || rest.iter().any(|byte| *byte != b'.') {
        return Err("another datagram came back".into());
    }
    Ok(u32::from_be_bytes(*number))
}

/// The server closes one session, this end another; the runner looks at what the server says of that.
async fn close(client: &Client) -> Result<String, Error> {
    let session = client.session("/close").await?;
    match session.closed().await {
        SessionError::Closed {
            code: 4712,
            reason,
            by_peer: true,
        } if reason == "goodbye" => {}
        other => return Err(format!("the server's close was: {other}").into()),
    }
    let session = client.session("/echo").await?;
    session.close(4711, "see you");
    tokio::time::sleep(PARTING).await;
    Ok("both ways".to_owned())
}
