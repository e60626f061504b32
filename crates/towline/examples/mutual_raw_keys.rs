//! Mutual raw keys: both ends know each other by their public keys, with no certificate (RFC 7250).
//!
//! `cargo run -p towline --example mutual_raw_keys`
//!
//! Each end keeps a private key and a list of the public keys that it believes, as SSH does. A client
//! whose key is not on the server's list is refused in the handshake.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::net::SocketAddr;

use towline::config::{self, ClientAuth, ClientConfig, Identity, Options, ServerConfig, Trust};
use towline::{ConnectError, Connection, ConnectionError, Endpoint};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    // Keys are made once and kept: `private_key_pem` writes one, `raw_key_from_pem` reads it.
    let (ship, harbour) = (Identity::generate_raw_key()?, Identity::generate_raw_key()?);
    println!("the ship is    {}", ship.key_pin());
    println!("the harbour is {}", harbour.key_pin());

    let server = Endpoint::server(loopback, believes(&harbour, &[&ship])?)?;
    let address = server.local_addr();
    let client = Endpoint::client(loopback)?;

    // The right key at both ends.
    let config = trusts(&ship, &harbour)?;
    let connecting = client.connect(address, "harbour", &config);
    let (connection, accepted) = tokio::join!(connecting, server.accept());
    let (connection, accepted) = (connection?, accepted.ok_or("the endpoint is closed")?);
    let peer_key = |connection: &Connection| connection.peer_identity().map(|peer| peer.key_pin());
    assert_eq!(peer_key(&connection), Some(harbour.key_pin()));
    assert_eq!(peer_key(&accepted), Some(ship.key_pin()));
    println!("both know who the other is");

    // A key that the server does not know. A client is done with its handshake before the server has
    // seen its key, so the refusal may come as the end of a connection.
    let stranger = Identity::generate_raw_key()?;
    let refusal = match client
        .connect(address, "harbour", &trusts(&stranger, &harbour)?)
        .await
    {
        Ok(connection) => connection.closed().await,
        Err(ConnectError::Failed(error)) => error,
        Err(error) => return Err(error.into()),
    };
    println!("a stranger: {refusal}");
    assert!(matches!(refusal, ConnectionError::ClosedByPeer(_)));

    // A server that is not the one it should be. The client notices and says so.
    let config = trusts(&ship, &stranger)?;
    let refusal = client.connect(address, "harbour", &config).await;
    let refusal = refusal.err().ok_or("an impostor was believed")?;
    println!("an impostor: {refusal}");

    connection.close(0, b"done");
    client.wait_idle().await;
    Ok(())
}

/// A server that shows `own` and takes clients with these keys.
fn believes(own: &Identity, known: &[&Identity]) -> Outcome<ServerConfig> {
    let keys = known.iter().map(|identity| identity.key_pin()).collect();
    Ok(config::server(
        own,
        &ClientAuth::RawKeys(keys),
        &Options::new("port"),
    )?)
}

/// A client that shows `own` and takes a server with that key.
fn trusts(own: &Identity, server: &Identity) -> Outcome<ClientConfig> {
    let trust = Trust::RawKeys(vec![server.key_pin()]);
    Ok(config::client(&trust, Some(own), &Options::new("port"))?)
}
