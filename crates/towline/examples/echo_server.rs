//! Sends every stream and datagram back. Prints the pin that `echo_client` wants.
//!
//! `cargo run --example echo_server [ADDRESS]`
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use towline::config::{self, ClientAuth, Identity, Options};
use towline::{Connection, Endpoint, RecvStream, SendStream};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => SocketAddr::from(([127, 0, 0, 1], 4433)),
    };
    let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
    let server = config::server(&identity, &ClientAuth::None, &Options::new("echo"))?;
    let endpoint = Endpoint::server(address, server)?;
    println!("listening on {}", endpoint.local_addr());
    println!("pin {}", identity.key_pin());

    while let Some(connection) = endpoint.accept().await {
        tokio::spawn(serve(connection));
    }
    Ok(())
}

async fn serve(connection: Connection) {
    println!("{} connected", connection.remote_addr());
    loop {
        tokio::select! {
            stream = connection.accept_bi() => match stream {
                Ok((send, recv)) => {
                    tokio::spawn(echo(send, recv));
                }
                Err(error) => {
                    println!("{}: {error}", connection.remote_addr());
                    return;
                }
            },
            datagram = connection.read_datagram() => {
                if let Ok(datagram) = datagram {
                    // A datagram that cannot be sent now is lost, as datagrams are.
                    let _ = connection.send_datagram(datagram);
                }
            }
        }
    }
}

async fn echo(
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    while let Some(chunk) = recv.read_chunk(64 * 1024).await? {
        send.write_chunk(chunk).await?;
    }
    send.finished().await?;
    Ok(())
}
