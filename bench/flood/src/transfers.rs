//! Transfers that were running before the flood: half to the server, half from it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towline::Endpoint;

use crate::server::Server;
use crate::{Outcome, SERVER_NAME, TRANSFERS, client_config, honest_address};

/// Their addresses follow those of the clients.
const FIRST_ADDRESS: u32 = 5000;

pub(crate) struct Transfers {
    received: Arc<AtomicU64>,
    /// Keeps them alive.
    _endpoints: Vec<Endpoint>,
}

impl Transfers {
    /// Starts them; all together send `mbit`.
    pub(crate) async fn start(server: SocketAddr, mbit: u32) -> Outcome<Self> {
        let received = Arc::new(AtomicU64::new(0));
        let mut endpoints = Vec::new();
        let config = client_config(mbit)?;
        for n in 0..TRANSFERS {
            let address = IpAddr::V4(honest_address(FIRST_ADDRESS + n));
            let endpoint = Endpoint::client((address, 0).into())?;
            let connection = endpoint.connect(server, SERVER_NAME, &config).await?;
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                let data = Bytes::from(vec![7; 1 << 16]);
                if n % 2 == 0 {
                    let mut stream = connection.open_uni().await?;
                    loop {
                        stream.write_chunk(data.clone()).await?;
                    }
                }
                let (mut send, mut stream) = connection.open_bi().await?;
                send.write_all(b"!").await?;
                while let Some(chunk) = stream.read_chunk(1 << 18).await? {
                    received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
                Outcome::Ok(())
            });
            endpoints.push(endpoint);
        }
        Ok(Self {
            received,
            _endpoints: endpoints,
        })
    }

    /// Mbit/s that arrive at both ends together during `time`.
    pub(crate) async fn measure(&mut self, server: &mut Server, time: Duration) -> Outcome<f64> {
        let bytes = |server: &mut Server| -> Outcome<u64> {
            Ok(server.report()?.received + self.received.load(Ordering::Relaxed))
        };
        let (began, before) = (Instant::now(), bytes(server)?);
        tokio::time::sleep(time).await;
        let got = bytes(server)? - before;
        Ok(got as f64 * 8e-6 / began.elapsed().as_secs_f64())
    }
}
