//! The order in which components write into a packet: one list, static calls.

use towline_wire::{PING_LEN, PacketNumberSpace, Time, write_ping};

use super::Connection;
use super::component::{PacketWriter, SentFrame};
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
        self.ping_pending
            || self.datagrams.has_pending()
            || self.path.has_pending()
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
        if self.has_pending_beside_streams() {
            self.handshake.write_frames(space, w);
            self.path.write_frames(w);
            self.local_cids.write_frames(w);
            self.remote_cids.write_frames(w);
            self.datagrams.write_frames(w, &mut self.events);
        }
        let rtt = self.recovery.rtt();
        let smoothed = rtt.smoothed();
        let min = rtt.min().unwrap_or(smoothed);
        self.streams
            .write_frames(now, RoundTrip { smoothed, min }, w, &mut self.events);
        if self.ping_pending && w.remaining() >= PING_LEN {
            self.ping_pending = false;
            if !w.ack_eliciting {
                write_ping(w.w);
                w.record(SentFrame::Ping);
            }
        }
    }
}
