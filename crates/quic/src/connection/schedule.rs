//! The order in which components write into a packet: one list, static calls.

use std::time::Duration;

use towline_wire::{PING_LEN, PacketNumberSpace, Time, write_ping};

use super::Connection;
use super::component::{PacketWriter, SentFrame};

impl Connection {
    /// Whether a component has congestion-controlled frames for a packet of `space`.
    pub(super) fn has_pending(&self, space: PacketNumberSpace) -> bool {
        if self.handshake.has_pending(space) {
            return true;
        }
        space == PacketNumberSpace::Application
            && (self.streams.has_pending()
                || self.ping_pending
                || self.datagrams.has_pending()
                || self.path.has_pending()
                || self.local_cids.has_pending()
                || self.remote_cids.has_pending())
    }

    /// Lets every component write in its turn.
    pub(super) fn write_frames(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        w: &mut PacketWriter<'_, '_>,
        smoothed_rtt: Duration,
    ) {
        self.acks.write_frames(now, space, w);
        if !w.may_send_data {
            return;
        }
        self.handshake.write_frames(space, w);
        if space != PacketNumberSpace::Application {
            return;
        }
        self.path.write_frames(w);
        self.local_cids.write_frames(w);
        self.remote_cids.write_frames(w);
        self.datagrams.write_frames(w, &mut self.events);
        self.streams
            .write_frames(now, smoothed_rtt, w, &mut self.events);
        if self.ping_pending && w.remaining() >= PING_LEN {
            self.ping_pending = false;
            if !w.ack_eliciting {
                write_ping(w.w);
                w.record(SentFrame::Ping);
            }
        }
    }
}
