//! Honest clients: each with its own prefix, socket and connection.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use towline::Endpoint;

use crate::{Outcome, SERVER_NAME, client_config, honest_address};

/// The first comes when the flood is under way.
const PAUSE: Duration = Duration::from_millis(1000);

/// How long each needed to connect; `None` for those that did not.
pub(crate) type Connected = Vec<Option<Duration>>;

/// Connects `count` clients, spread over the half of `time` after a pause.
pub(crate) async fn connect_all(server: SocketAddr, count: u32, time: Duration) -> Connected {
    let between = time.saturating_sub(PAUSE) / 2 / count.max(1);
    let clients: Vec<_> = (0..count)
        .map(|n| {
            tokio::spawn(async move {
                tokio::time::sleep(PAUSE + between * n).await;
                match connect(server, n).await {
                    Ok(time) => Some(time),
                    Err(error) => {
                        eprintln!("client {n}: {error}");
                        None
                    }
                }
            })
        })
        .collect();
    let mut connected = Vec::new();
    for client in clients {
        connected.push(client.await.ok().flatten());
    }
    connected
}

async fn connect(server: SocketAddr, n: u32) -> Outcome<Duration> {
    let config = client_config(0)?;
    let endpoint = Endpoint::client((IpAddr::V4(honest_address(n)), 0).into())?;
    let began = Instant::now();
    let connection = endpoint.connect(server, SERVER_NAME, &config).await?;
    let took = began.elapsed();
    connection.close(0, b"");
    Ok(took)
}
