//! The struct `Connection`: its components, and the few things that several of its stages ask of
//! more than one of them.
//!
//! Below every stage (`input`, `output`, `establish`, `close`, `timeout`, …), each of which is an
//! `impl Connection` in a file of its own that uses this one. Nothing here calls a stage.

use std::sync::Arc;

use towline_recovery::{PathState, Recovery};
use towline_wire::{PacketNumberSpace, Side, Time, short_header_len};

use super::acks::Acks;
use super::cids::{LocalCids, RemoteCids};
use super::component::SentFrame;
use super::datagrams::Datagrams;
use super::delivery::Delivery;
use super::events::{Event, Events};
use super::handshake::Handshake;
use super::liveness::Liveness;
use super::observation::Observation;
use super::paths::Paths;
use super::protect::TAG_LEN;
use super::received::ReceivedCounters;
use super::sealer::Sealer;
use super::state::Lifecycle;
use super::streams::Streams;
use super::timers::Timer;
use crate::config::TransportConfig;

/// One QUIC connection.
pub struct Connection {
    pub(super) side: Side,
    pub(super) config: Arc<TransportConfig>,
    pub(super) lifecycle: Lifecycle,
    pub(super) handshake: Handshake,
    pub(super) sealer: Sealer,
    pub(super) recovery: Recovery<SentFrame>,
    pub(super) acks: Acks,
    pub(super) local_cids: LocalCids,
    pub(super) remote_cids: RemoteCids,
    pub(super) paths: Paths,
    pub(super) streams: Streams,
    pub(super) datagrams: Datagrams,
    pub(super) liveness: Liveness,
    pub(super) events: Events,
    pub(super) received: ReceivedCounters,
    /// `None` if nobody watches.
    pub(super) observation: Option<Box<Observation>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("side", &self.side)
            .field("phase", &self.lifecycle.phase())
            .field("remote", &self.paths.remote())
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// The next deadline, and which it is.
    pub fn next_timeout(&self) -> Option<(Time, Timer)> {
        if !self.lifecycle.is_open() {
            return self.liveness.next_timeout();
        }
        let loss = self
            .recovery
            .next_timeout(self.paths.state())
            .map(|(at, _)| (at, Timer::LossDetection));
        let ack = self.acks.next_timeout().map(|at| (at, Timer::AckDelay));
        let datagram = self.datagrams.next_timeout();
        let datagram = datagram.map(|at| (at, Timer::DatagramAge));
        let path = self.paths.next_timeout();
        let path = path.map(|at| (at, Timer::PathValidation));
        [loss, ack, datagram, path, self.liveness.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Bytes for frames in a full 1-RTT packet.
    pub(super) fn datagram_room(&self) -> usize {
        let overhead = short_header_len(self.remote_cids.current().len(), 4) + TAG_LEN;
        usize::from(self.paths.state().max_datagram_size()) - overhead
    }

    /// After what may have changed the size of datagrams, which was `before`.
    pub(super) fn note_datagram_size(&mut self, before: u16) {
        let size = self.paths.state().max_datagram_size();
        if size != before {
            tracing::debug!(before, size, "datagrams of another size");
            self.on_datagram_room();
        }
    }

    /// The same after a change of path, which may also have brought a longer connection ID: there was
    /// room for `before` bytes of frames.
    pub(super) fn note_datagram_room(&mut self, before: usize) {
        if self.datagram_room() != before {
            self.on_datagram_room();
        }
    }

    /// Datagrams that wait and fit no longer go, and the application hears of it.
    fn on_datagram_room(&mut self) {
        let room = self.datagram_room();
        self.datagrams.drop_larger_than(room, &mut self.events);
        self.events.push(Event::MtuChanged);
    }

    pub(super) fn split_for_delivery(
        &mut self,
    ) -> (&mut Recovery<SentFrame>, &mut PathState, Delivery<'_>) {
        let owner = Delivery {
            acks: &mut self.acks,
            handshake: &mut self.handshake,
            local_cids: &mut self.local_cids,
            remote_cids: &mut self.remote_cids,
            streams: &mut self.streams,
            datagrams: &mut self.datagrams,
            events: &mut self.events,
            run: None,
        };
        (&mut self.recovery, self.paths.state_mut(), owner)
    }

    /// Forgets a packet number space whose keys go.
    pub(super) fn discard_space(&mut self, now: Time, space: PacketNumberSpace) {
        if self.sealer.protection.discard(space) {
            self.recovery
                .discard_space(self.paths.state_mut(), now, space);
            self.acks.discard(space);
            self.handshake.discard(space);
        }
    }

    /// Gives back what the handshake took, unless data follows on it that would take it again.
    pub(super) fn leave_handshake_behind(&mut self) {
        if self.paths.state().bytes_in_flight() == 0 && !self.streams.has_pending() {
            self.trim();
        }
    }

    /// Gives back the memory that busier times left behind.
    pub(crate) fn trim(&mut self) {
        if self.lifecycle.is_confirmed() {
            self.handshake.trim();
        }
        self.acks.trim();
        self.recovery.trim();
        self.streams.trim();
        self.datagrams.trim();
        self.events.trim();
        self.local_cids.trim();
        self.remote_cids.trim();
        self.sealer.trim();
    }
}
