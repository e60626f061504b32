//! [`Session`]: one WebTransport session, and the prefix by which streams and datagrams name it.

use bytes::Bytes;
use towline_wire::http3::{WebTransportHeader, emit_datagram_header};
use towline_wire::{Direction, StreamId, Writer};

use super::capsules::CapsuleReader;
use super::dialect::Dialect;
use super::flow::Flow;
use crate::account::{Account, Charge};

/// The stream of the session's CONNECT request (draft-ietf-webtrans-http3-16 §2.2).
pub type SessionId = StreamId;

/// One session that is not over.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) dialect: Dialect,
    pub(crate) state: State,
    /// `None` where the two ends have agreed on no limits.
    pub(crate) flow: Option<Flow>,
    pub(crate) reader: CapsuleReader,
    /// The application protocols that a client offered.
    pub(crate) protocols: Vec<String>,
    offered: Charge,
    /// The peer asked for the end.
    pub(crate) draining: bool,
    /// This end has to ask the peer for the end.
    pub(crate) drain: bool,
    /// And has done so.
    pub(crate) drain_sent: bool,
    /// Streams that this end opened and whose prefix the transport has not taken whole.
    pub(crate) opening: [Option<(StreamId, Bytes)>; 2],
    /// Somebody waits for a stream of the connection.
    pub(crate) wants_stream: [bool; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// A CONNECT request that has no answer yet.
    Asked,
    Open,
}

/// A stream of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) session: SessionId,
    /// Bytes that the peer sent before the payload.
    pub(crate) prefix: u64,
    /// Bytes of payload that came, and that the application read.
    pub(crate) received: u64,
    pub(crate) read: u64,
    /// Bytes of payload that were written.
    pub(crate) written: u64,
    /// It was stopped, and the peer has not said how much it has sent.
    pub(crate) awaits_size: bool,
    /// The application is through with it.
    pub(crate) over: bool,
}

impl Session {
    pub(crate) fn new(
        dialect: Dialect,
        flow: Option<Flow>,
        protocols: Vec<String>,
        account: &Account,
    ) -> Self {
        let texts = protocols
            .iter()
            .map(|name| size_of::<String>() + name.len());
        Self {
            offered: account.charge(texts.sum()),
            dialect,
            state: State::Asked,
            flow,
            reader: CapsuleReader::default(),
            protocols,
            draining: false,
            drain: false,
            drain_sent: false,
            opening: [None, None],
            wants_stream: [false; 2],
        }
    }

    /// One was chosen, or none.
    pub(crate) fn forget_protocols(&mut self) {
        self.protocols = Vec::new();
        self.offered.set(0);
    }
}

/// Bytes in front of the payload of a stream: what a reset has to deliver
/// (draft-ietf-webtrans-http3-16 §4.4).
pub fn prefix_len(session: SessionId, direction: Direction) -> u64 {
    let header = WebTransportHeader { direction, session };
    header.encoded_len() as u64
}

/// The label of the TLS exporter from which sessions take keying material
/// (draft-ietf-webtrans-http3-16 §4.8).
pub const EXPORTER_LABEL: &str = "EXPORTER-WebTransport";

/// The context of that exporter, which keeps a session's keying material apart from others'.
/// `None` where the application's label or context is longer than 255 bytes.
pub fn exporter_context(session: SessionId, label: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    let lens = [label, context].map(|part| u8::try_from(part.len()));
    let [Ok(label_len), Ok(context_len)] = lens else {
        return None;
    };
    let session = session.as_u64().to_be_bytes();
    Some([&session[..], &[label_len], label, &[context_len], context].concat())
}

/// What a stream of the session begins with (draft-ietf-webtrans-http3-16 §4.2, §4.3).
pub(crate) fn prefix(session: SessionId, direction: Direction) -> Bytes {
    let mut bytes = [0; 16];
    let mut writer = Writer::new(&mut bytes);
    WebTransportHeader { direction, session }.emit(&mut writer);
    Bytes::copy_from_slice(writer.written())
}

/// What a datagram of the session begins with (RFC 9297 §2.1).
pub fn datagram_header(session: SessionId) -> Bytes {
    let mut bytes = [0; 8];
    let mut writer = Writer::new(&mut bytes);
    emit_datagram_header(session, &mut writer);
    Bytes::copy_from_slice(writer.written())
}
