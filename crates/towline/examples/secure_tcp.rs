//! Secure TCP in one process: a server that answers one client, each with the other's key pinned.
//!
//! `cargo run --example secure_tcp`
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline::config::{ClientAuth, Identity, Trust};
use towline::identity::KeyPin;
use towline::stcp::{Listener, Options, client_config, connect, listen, server_config};

#[tokio::main]
async fn main() -> io::Result<()> {
    let key = || Identity::generate_raw_key().map_err(io::Error::other);
    let (server, client) = (key()?, key()?);
    let clients = ClientAuth::RawKeys(vec![client.key_pin()]);
    let config = server_config(&server, &clients, &Options::default()).map_err(io::Error::other)?;
    let listener = listen("127.0.0.1:0", config).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(serve(listener));
    let answer = ping(address, server.key_pin(), &client).await?;
    println!("{}", String::from_utf8_lossy(&answer).trim_end());
    assert_eq!(answer, b"PONG\r\n");
    serving.await.map_err(io::Error::other)?
}

async fn serve(mut listener: Listener) -> io::Result<()> {
    let (mut stream, from) = listener.accept().await?;
    println!("{from} is {:?}", stream.authentication());
    let mut question = Vec::new();
    stream.read_to_end(&mut question).await?;
    stream.write_all(b"PONG\r\n").await?;
    stream.shutdown().await
}

async fn ping(address: std::net::SocketAddr, pin: KeyPin, key: &Identity) -> io::Result<Vec<u8>> {
    let trust = Trust::RawKeys(vec![pin]);
    let config = client_config(&trust, Some(key), &Options::default()).map_err(io::Error::other)?;
    let mut stream = connect(address, &address.ip().to_string(), &config).await?;
    stream.write_all(b"PING\r\n").await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}
