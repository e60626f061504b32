//! A server's handshake before it has a TLS session: which one it gets depends on the protocols that
//! the client's hello offers, and the hello may come in several packets.
//!
//! Owned by the handshake's exchange until the hello is whole. It holds what a session is made of.

use std::sync::Arc;

use towline_wire::{StatelessResetToken, handshake_message_len, offered_protocols};

use crate::config::{ProtocolConfig, ServerConfig, TransportConfig};

/// Cap: bytes of a ClientHello that are waited for, as many as rustls takes. Of a longer one TLS is told
/// at once, and refuses it.
const MAX_CLIENT_HELLO: usize = 4 + 0xffff;

/// What a server's TLS session will be made of, and what arrived for it.
pub(crate) struct Opening {
    /// For a client that offers none of `protocols`.
    tls: Arc<rustls::ServerConfig>,
    protocols: Arc<[ProtocolConfig]>,
    /// The one that the transport parameters name.
    reset_token: StatelessResetToken,
    /// What of the first message arrived in order.
    hello: Vec<u8>,
}

/// What a client's hello led to.
pub(crate) struct Chosen {
    pub(crate) tls: Arc<rustls::ServerConfig>,
    /// The one protocol that TLS may agree on, and its settings; `None` leaves it to `tls`.
    pub(crate) protocol: Option<(Vec<u8>, Arc<TransportConfig>)>,
    pub(crate) reset_token: StatelessResetToken,
    /// For TLS to read.
    pub(crate) hello: Vec<u8>,
}

impl Opening {
    /// `None` if there is nothing to choose.
    pub(crate) fn new(config: &ServerConfig, reset_token: StatelessResetToken) -> Option<Self> {
        (!config.protocols.is_empty()).then(|| Self {
            tls: Arc::clone(&config.tls),
            protocols: Arc::clone(&config.protocols),
            reset_token,
            hello: Vec::new(),
        })
    }

    /// Takes what comes next in the CRYPTO stream; whether the choice can be made now.
    pub(super) fn receive(&mut self, data: &[u8]) -> bool {
        self.hello.extend_from_slice(data);
        handshake_message_len(&self.hello)
            .is_some_and(|len| self.hello.len() >= len || len > MAX_CLIENT_HELLO)
    }

    /// The first protocol of ours that the client offers (RFC 7301 §3.2).
    pub(super) fn choose(self) -> Chosen {
        let offered = offered_protocols(&self.hello);
        let mut own = self.protocols.iter();
        let protocol = own.find(|own| offered.clone().any(|name| name == own.alpn));
        Chosen {
            tls: protocol
                .and_then(|protocol| protocol.tls.clone())
                .unwrap_or(self.tls),
            protocol: protocol.map(|own| (own.alpn.clone(), Arc::clone(&own.transport))),
            reset_token: self.reset_token,
            hello: self.hello,
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.hello.capacity()
    }
}
