//! The order in which components write into a packet: one list, static calls.

use towline_wire::{IMMEDIATE_ACK_LEN, PacketNumberSpace, Time, write_immediate_ack};

use super::component::PacketWriter;
use super::parts::Connection;
use super::streams::RoundTrip;

impl Connection {
    /// Whether a component has congestion-controlled frames for a packet of `space`.
    pub(super) fn has_pending(&self, space: PacketNumberSpace) -> bool {
        if space != PacketNumberSpace::Application {
            return self.handshake.has_pending(space);
        }
        self.streams.has_pending() || self.has_pending_beside_streams()
    }

    /// As `has_pending` in the application space, for all but the streams.
    fn has_pending_beside_streams(&self) -> bool {
        self.liveness.has_pending()
            || self.datagrams.has_pending()
            || self.paths.has_pending()
            || self.local_cids.has_pending()
            || self.remote_cids.has_pending()
            || self.handshake.has_pending(PacketNumberSpace::Application)
    }

    /// Lets every component write in its turn.
    pub(super) fn write_frames(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        w: &mut PacketWriter<'_, '_>,
    ) {
        self.acks.write_frames(now, space, w);
        if !w.may_send_data {
            return;
        }
        if space != PacketNumberSpace::Application {
            self.handshake.write_frames(space, w);
            return;
        }
        let round_trip = self.round_trip();
        // An ACK_FREQUENCY frame rides along; it is no reason for a packet.
        if self.acks.request.is_pending() || self.has_pending_beside_streams() {
            self.handshake.write_frames(space, w);
            self.paths.write_frames(w);
            self.local_cids.write_frames(w);
            self.remote_cids.write_frames(w);
            if self.acks.request.is_pending() {
                self.write_ack_frequency(w);
            }
            let alone = !self.streams.has_pending()
                && !self.liveness.has_pending()
                && self.recovery.probes_owed(space) == 0;
            let turn = || round_trip.turn();
            self.datagrams
                .write_frames(now, turn, alone, w, &mut self.events);
        }
        self.streams
            .write_frames(now, round_trip, w, &mut self.events);
        self.liveness.write_frames(w);
        if self.acks.request.is_open() {
            self.write_immediate_ack_in_probe(w);
        }
    }

    fn round_trip(&self) -> RoundTrip {
        let path = self.paths.state();
        let rtt = path.rtt();
        let smoothed = rtt.smoothed();
        RoundTrip {
            smoothed,
            min: rtt.min().unwrap_or(smoothed),
            window: path.congestion_window(),
        }
    }

    /// A probe is too few packets for a thinned peer to answer at once
    /// (draft-ietf-quic-ack-frequency-14 §7). Last, lest data sent again need another packet.
    fn write_immediate_ack_in_probe(&self, w: &mut PacketWriter<'_, '_>) {
        if self.recovery.probes_owed(PacketNumberSpace::Application) > 0
            && w.remaining() >= IMMEDIATE_ACK_LEN
        {
            write_immediate_ack(w.w);
            w.mark_ack_eliciting();
        }
    }

    /// How often the peer should acknowledge is worth some bytes but no packet of its own.
    fn write_ack_frequency(&mut self, w: &mut PacketWriter<'_, '_>) {
        if w.ack_eliciting || self.streams.has_pending() || self.datagrams.has_pending() {
            self.acks.request.write_frames(w);
            self.paths
                .state_mut()
                .set_peer_max_ack_delay(self.acks.request.max_ack_delay());
        }
    }
}
