//! Sends a message to `echo_server` on a stream and in a datagram and prints what comes back.
//!
//! `cargo run --example echo_client ADDRESS PIN [MESSAGE]`
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use towline::Endpoint;
use towline::config::{self, Options, Trust};
use towline::identity::Pin;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(pin)) = (arguments.next(), arguments.next()) else {
        return Err("usage: echo_client ADDRESS PIN [MESSAGE]".into());
    };
    let message = arguments.next().unwrap_or_else(|| "ahoy".to_owned());
    let address: SocketAddr = address.parse()?;

    let trust = Trust::Pinned(Pin::either(&pin)?.to_vec());
    let client = config::client(&trust, None, &Options::new("echo"))?;
    let bind: SocketAddr = if address.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0u16; 8], 0).into()
    };
    let endpoint = Endpoint::client(bind)?;
    let connection = endpoint.connect(address, "localhost", &client).await?;

    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(message.as_bytes()).await?;
    send.finish()?;
    let back = recv.read_to_end(1 << 20).await?;
    println!("stream: {}", String::from_utf8_lossy(&back));

    connection.send_datagram(Bytes::from(message))?;
    match tokio::time::timeout(Duration::from_secs(1), connection.read_datagram()).await {
        Ok(datagram) => println!("datagram: {}", String::from_utf8_lossy(&datagram?)),
        Err(_) => println!("datagram: lost"),
    }
    println!("round trip: {:?}", connection.rtt());

    connection.close(0, b"done");
    endpoint.wait_idle().await;
    Ok(())
}
