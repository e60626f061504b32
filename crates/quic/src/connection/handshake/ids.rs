//! The connection IDs of the handshake, which the peer's transport parameters must confirm
//! (RFC 9000 §7.3).
//!
//! Owned by `Handshake`. Which IDs packets carry later is not its question: that is `cids`.

use towline_wire::{ConnectionId, PreferredAddress, Side, TransportErrorCode, TransportParameters};

use crate::error::Violation;

/// The connection IDs that the first packets of both ends carried.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeIds {
    /// Destination of the client's first Initial.
    pub(crate) original: ConnectionId,
    /// Our source connection ID.
    pub(crate) local: ConnectionId,
    /// The peer's source connection ID; a client learns it from the first packet.
    pub(crate) remote: Option<ConnectionId>,
    /// Source connection ID of a Retry, if there was one.
    pub(crate) retry: Option<ConnectionId>,
    /// A server's: the ID that is for another address of its own, and that address.
    pub(crate) preferred: Option<Box<PreferredAddress>>,
}

impl HandshakeIds {
    /// Whether the peer's parameters name the IDs that were used.
    pub(super) fn confirm(&self, side: Side, peer: &TransportParameters) -> Result<(), Violation> {
        let error = |what| {
            let code = TransportErrorCode::TRANSPORT_PARAMETER_ERROR;
            Err(Violation::new(code, what))
        };
        if peer.initial_source_connection_id != self.remote {
            return error("initial_source_connection_id is not the one used");
        }
        if side.is_client() {
            if peer.original_destination_connection_id != Some(self.original) {
                return error("original_destination_connection_id is not ours");
            }
            if peer.retry_source_connection_id != self.retry {
                return error("retry_source_connection_id does not match the Retry");
            }
        }
        Ok(())
    }
}
