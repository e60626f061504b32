//! What an observer is told of a connection: events, named as qlog names them.
//!
//! An endpoint with an [`ObserverFactory`] asks it for an [`Observer`] for each new connection, and
//! the connection tells that one what it sends, receives, loses and decides. Without a factory
//! nothing is made, and each place that would tell something costs one branch. Nothing here does
//! I/O, allocates, or knows a format: events borrow from the connection, packets are shown as they
//! are before they are sealed and after they are opened. Names and meanings are those of
//! draft-ietf-quic-qlog-quic-events; [`Event::SpuriousLoss`] is our own.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};

use rustls::CipherSuite;
pub use towline_recovery::{
    CongestionPhase, EcnState, GRANULARITY as TIMER_GRANULARITY, Loss, LossTrigger,
    Stats as RecoveryMetrics,
};
pub use towline_wire::TransportParameters;
use towline_wire::{ConnectionId, Frame, PacketKind, PacketNumberSpace, Reader, Side, Time};

use crate::connection::component::Ecn;
use crate::error::ConnectionError;

/// Makes the observers of an endpoint's connections.
pub trait ObserverFactory: Send + Sync {
    /// A connection begins; `None` leaves it unobserved.
    fn observe(&self, now: Time, connection: &NewConnection) -> Option<Box<dyn Observer>>;
}

/// Is told what happens to one connection, in order, and dropped with it.
///
/// Called by whoever drives the engine: it must neither wait nor panic.
pub trait Observer: Send {
    /// Something happened.
    fn on_event(&mut self, now: Time, event: &Event<'_>);
}

/// A connection as it begins.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewConnection {
    /// Which end we are.
    pub side: Side,
    /// Destination of the client's first Initial packet: both ends know it, so it names the
    /// connection in the logs of both.
    pub original_destination_cid: ConnectionId,
    /// Our first connection ID.
    pub local_cid: ConnectionId,
    /// The peer's first connection ID; a client does not know it yet.
    pub remote_cid: Option<ConnectionId>,
    /// The peer.
    pub remote: SocketAddr,
    /// Our address, where the peer's packets told it.
    pub local_ip: Option<IpAddr>,
}

impl NewConnection {
    /// For tests of observers; an endpoint makes its own.
    pub fn new(
        side: Side,
        original_destination_cid: ConnectionId,
        local_cid: ConnectionId,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
    ) -> Self {
        Self {
            side,
            original_destination_cid,
            local_cid,
            remote_cid: None,
            remote,
            local_ip,
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first event of every connection.
    ConnectionStarted(NewConnection),
    /// The connection went from one state to the next.
    ConnectionStateUpdated {
        /// Where it was.
        old: Option<ConnectionState>,
        /// Where it is.
        new: ConnectionState,
    },
    /// The connection is over.
    ConnectionClosed {
        /// Why.
        reason: &'a ConnectionError,
    },
    /// The application protocol was agreed on.
    AlpnInformation {
        /// Its name.
        chosen: &'a [u8],
    },
    /// One end's transport parameters are known.
    ParametersSet {
        /// Whether they are the peer's.
        by_peer: bool,
        /// The parameters.
        parameters: &'a TransportParameters,
        /// The cipher suite, once it is agreed on.
        cipher_suite: Option<CipherSuite>,
    },
    /// A packet is about to be sealed and sent.
    PacketSent(Packet<'a>),
    /// An authentic packet arrived for the first time; its frames are handled next.
    PacketReceived(Packet<'a>),
    /// A packet is not looked at any further.
    PacketDropped {
        /// Its kind.
        kind: PacketKind,
        /// Bytes of it.
        len: usize,
        /// Why.
        reason: DropReason,
    },
    /// A packet waits for its keys.
    PacketBuffered {
        /// Its kind.
        kind: PacketKind,
        /// Bytes of it.
        len: usize,
    },
    /// A packet was declared lost.
    PacketLost(Loss),
    /// Packets that had been declared lost were acknowledged after all.
    SpuriousLoss {
        /// Whose numbers they have.
        space: PacketNumberSpace,
        /// How many.
        packets: u32,
    },
    /// There are new keys for both directions.
    KeyUpdated {
        /// Of which packets.
        space: PacketNumberSpace,
        /// How many updates there were before; 0 for the first keys.
        key_phase: u64,
    },
    /// Keys of both directions are gone.
    KeyDiscarded {
        /// Of which packets.
        space: PacketNumberSpace,
    },
    /// What recovery starts with.
    RecoveryParametersSet {
        /// What it knows at first: initial round trip, window and datagram size.
        metrics: &'a RecoveryMetrics,
    },
    /// A number of recovery's changed since the last such event; told once for a train of datagrams.
    RecoveryMetricsUpdated {
        /// All numbers.
        metrics: &'a RecoveryMetrics,
    },
    /// The congestion controller went from one phase to another.
    CongestionStateUpdated {
        /// Where it was; `None` at first.
        old: Option<CongestionPhase>,
        /// Where it is.
        new: CongestionPhase,
        /// What brought it there, if that is known.
        trigger: Option<CongestionTrigger>,
    },
    /// Full packets have another size.
    MtuUpdated {
        /// Bytes of UDP payload until now; `None` at first.
        old: Option<u16>,
        /// Bytes of UDP payload from now on.
        new: u16,
    },
    /// What is known of ECN on the path changed.
    EcnStateUpdated {
        /// What was known; `None` at first.
        old: Option<EcnState>,
        /// What is known.
        new: EcnState,
    },
    /// The connection came a step further on the way to another path, or back.
    MigrationStateUpdated {
        /// Which step.
        new: MigrationState,
        /// The peer's address on that path.
        remote: SocketAddr,
        /// Ours, where it is known.
        local_ip: Option<IpAddr>,
    },
    /// A timer of loss recovery expired.
    TimerExpired {
        /// Which.
        timer: RecoveryTimer,
        /// Whose packets it concerns, where that is one space.
        space: Option<PacketNumberSpace>,
    },
    /// Something of the application's protocol, in a type of that protocol's that the engine does not know:
    /// `towline::http3::observe::Event` for HTTP/3 and WebTransport. Told by
    /// [`Connection::tell_observer`](crate::Connection::tell_observer).
    Application(&'a (dyn Any + Send)),
}

/// A packet with its contents in clear.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Packet<'a> {
    /// Its kind.
    pub kind: PacketKind,
    /// Its number.
    pub packet_number: u64,
    /// Its destination connection ID.
    pub dcid: ConnectionId,
    /// Its source connection ID, if its header has one.
    pub scid: Option<ConnectionId>,
    /// Its key phase bit, if its header has one (RFC 9001 §6).
    pub key_phase: Option<bool>,
    /// Bytes of the whole packet.
    pub len: usize,
    /// The codepoint of its datagram.
    pub ecn: Option<Ecn>,
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// For tests of observers: a packet of these frames and nothing else.
    pub fn new(
        kind: PacketKind,
        packet_number: u64,
        dcid: ConnectionId,
        payload: &'a [u8],
    ) -> Self {
        Self {
            kind,
            packet_number,
            dcid,
            scid: None,
            key_phase: None,
            len: payload.len(),
            ecn: None,
            payload,
        }
    }

    /// Bytes of its frames.
    pub fn payload_len(&self) -> usize {
        self.payload.len()
    }

    /// Its frames, up to the first that cannot be read.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        let mut reader = Reader::new(self.payload);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            Frame::parse(&mut reader).ok()
        })
        .fuse()
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// Its keys are gone, will never come, or are not there yet and too much waits for them.
    KeyUnavailable,
    /// It is a 0-RTT packet.
    Unsupported,
    /// Its source connection ID is not the peer's.
    WrongSource,
    /// It is not authentic.
    DecryptionFailure,
    /// Its number was received before.
    Duplicate,
    /// Its frames asked for more work than a packet may. It was told as received: what its first
    /// frames did stays.
    Overworked,
    /// It came from another address than the peer's. Its kind is what its first byte claims.
    OtherAddress,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The handshake is under way.
    HandshakeStarted,
    /// TLS is done.
    HandshakeCompleted,
    /// RFC 9001 §4.1.2.
    HandshakeConfirmed,
    /// We closed (RFC 9000 §10.2.1).
    Closing,
    /// The peer closed (RFC 9000 §10.2.2).
    Draining,
    /// Nothing is left.
    Closed,
}

/// What made a congestion controller change its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CongestionTrigger {
    /// Persistent congestion (RFC 9002 §7.6).
    PersistentCongestion,
    /// ECN marks.
    Ecn,
}

/// Where a connection is on its way to another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrationState {
    /// A path is asked whether it leads to the peer, without data.
    ProbingStarted,
    /// Nobody answered there.
    ProbingAbandoned,
    /// Somebody did.
    ProbingSuccessful,
    /// Data takes the path before it was asked.
    MigrationStarted,
    /// Data takes the path from before again.
    MigrationAbandoned,
    /// Data takes a path that was asked before.
    MigrationComplete,
}

/// A timer of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryTimer {
    /// The time threshold of loss detection (RFC 9002 §6.1.2).
    LossTime,
    /// The probe timeout (RFC 9002 §6.2).
    Pto,
}
