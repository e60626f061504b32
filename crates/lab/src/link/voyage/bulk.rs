//! [`Bulk`]: a transfer without end beside the link.

use std::net::SocketAddr;
use std::sync::Arc;

use towline_quic::{
    Algorithm, ClientConfig, Connection, ConnectionHandle, Direction, Endpoint, Event,
    ServerConfig, StreamId, TransportConfig,
};
use towline_testkit::{SERVER_NAME, TlsPair};
use towline_wire::Time;

use super::base::secrets;

/// What is sent; it is of no interest.
static ZEROS: [u8; 16_384] = [0; 16_384];

#[derive(Default)]
pub(super) struct Bulk {
    stream: Option<StreamId>,
    received: u64,
}

fn transport() -> TransportConfig {
    TransportConfig::default()
        .congestion(Algorithm::Cubic)
        .mtu(1200)
}

pub(super) fn endpoints(seed: u64, tls: &TlsPair) -> [Endpoint; 2] {
    let server = ServerConfig::new(Arc::clone(&tls.server)).transport(transport());
    [
        Endpoint::new(secrets(seed, 1 << 51), None),
        Endpoint::new(secrets(seed, 1 << 52), Some(Arc::new(server))),
    ]
}

pub(super) fn connect(now: Time, endpoint: &mut Endpoint, tls: &TlsPair, to: SocketAddr) {
    let client = ClientConfig::new(Arc::clone(&tls.client)).transport(transport());
    let connected = endpoint.connect(now, &client, to, SERVER_NAME);
    debug_assert!(connected.is_ok(), "the first connection");
}

impl Bulk {
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    pub(super) fn on_event(
        &mut self,
        endpoint: &mut Endpoint,
        handle: ConnectionHandle,
        event: &Event,
    ) {
        let Some(connection) = endpoint.connection_mut(handle) else {
            return;
        };
        match event {
            Event::Connected => self.stream = connection.open(Direction::Unidirectional),
            Event::Writable(_) => {}
            Event::Opened(direction) => {
                if let Some(id) = connection.accept(*direction) {
                    self.read(connection, id);
                }
                return;
            }
            Event::Readable(id) => return self.read(connection, *id),
            _ => return,
        }
        if let Some(id) = self.stream {
            while connection
                .write_slice(id, &ZEROS)
                .is_ok_and(|taken| taken > 0)
            {}
        }
    }

    fn read(&mut self, connection: &mut Connection, id: StreamId) {
        while let Ok(Some(bytes)) = connection.read(id, usize::MAX) {
            self.received += bytes.len() as u64;
        }
    }
}
