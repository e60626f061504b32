//! Takes what recovery learned about a packet back to the owner of each of its frames.

use std::ops::Range;

use towline_recovery::FrameOwner;
use towline_wire::StreamId;

use super::acks::Acks;
use super::cids::{LocalCids, RemoteCids};
use super::component::{SentFrame, byte_range};
use super::datagrams::Datagrams;
use super::events::Events;
use super::handshake::Handshake;
use super::streams::Streams;

/// The owners of sent frames, borrowed side by side.
pub(crate) struct Delivery<'a> {
    pub(crate) acks: &'a mut Acks,
    pub(crate) handshake: &'a mut Handshake,
    pub(crate) local_cids: &'a mut LocalCids,
    pub(crate) remote_cids: &'a mut RemoteCids,
    pub(crate) streams: &'a mut Streams,
    pub(crate) datagrams: &'a mut Datagrams,
    pub(crate) events: &'a mut Events,
    /// Acknowledged STREAM frames that lie side by side, not yet told: an ACK covers many.
    pub(crate) run: Option<AckedRun>,
}

/// Acknowledged bytes of one stream.
pub(crate) struct AckedRun {
    id: StreamId,
    range: Range<u64>,
    fin: bool,
}

impl Delivery<'_> {
    /// Tells the streams what was held back. Must be the last call.
    pub(crate) fn finish(&mut self) {
        if let Some(AckedRun { id, range, fin }) = self.run.take() {
            self.streams.on_stream_acked(id, range, fin, self.events);
        }
    }

    fn on_stream_acked(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        if let Some(run) = &mut self.run
            && run.id == id
            && run.range.end == range.start
            && !run.fin
        {
            run.range.end = range.end;
            run.fin = fin;
            return;
        }
        self.finish();
        self.run = Some(AckedRun { id, range, fin });
    }
}

impl FrameOwner<SentFrame> for Delivery<'_> {
    fn on_acked(&mut self, _packet_number: u64, frame: SentFrame) {
        match frame {
            SentFrame::Stream {
                id,
                offset,
                len,
                fin,
            } => self.on_stream_acked(id, byte_range(offset, len), fin),
            SentFrame::Ack { space, largest } => self.acks.on_acked(space, largest),
            SentFrame::Crypto { space, offset, len } => {
                self.handshake.on_crypto_acked(space, offset, len);
            }
            SentFrame::ResetStream { id, reliable_size } => {
                self.streams.on_reset_acked(id, reliable_size);
            }
            SentFrame::RetireConnectionId { sequence } => self.remote_cids.on_acked(sequence),
            SentFrame::AckFrequency { sequence } => self.acks.request.on_acked(sequence),
            SentFrame::Datagrams { count } => self.datagrams.on_acked(count),
            SentFrame::TrackedDatagram { id } => self.datagrams.on_tracked_acked(id, self.events),
            SentFrame::StopSending(_)
            | SentFrame::MaxData
            | SentFrame::MaxStreamData(_)
            | SentFrame::MaxStreams(_)
            | SentFrame::DataBlocked
            | SentFrame::StreamDataBlocked(_)
            | SentFrame::StreamsBlocked(_)
            | SentFrame::NewConnectionId { .. }
            | SentFrame::Ping => {}
            SentFrame::HandshakeDone => self.handshake.on_done_acked(),
        }
    }

    fn on_lost(&mut self, _packet_number: u64, frame: SentFrame) {
        self.finish();
        match frame {
            SentFrame::Stream {
                id,
                offset,
                len,
                fin,
            } => self.streams.on_stream_lost(id, offset, len, fin),
            SentFrame::Crypto { space, offset, len } => {
                self.handshake.on_crypto_lost(space, offset, len);
            }
            SentFrame::ResetStream { id, reliable_size } => {
                self.streams.on_reset_lost(id, reliable_size);
            }
            SentFrame::StopSending(id) => self.streams.on_stop_sending_lost(id),
            // Limits are sent again with their newest value (RFC 9000 §13.3).
            SentFrame::MaxData => self.streams.on_max_data_lost(),
            SentFrame::MaxStreamData(id) => self.streams.on_max_stream_data_lost(id),
            SentFrame::MaxStreams(dir) => self.streams.on_max_streams_lost(dir),
            // Sent again while the limit is still in the way (RFC 9000 §13.3).
            SentFrame::DataBlocked => self.streams.on_data_blocked_lost(),
            SentFrame::StreamDataBlocked(id) => self.streams.on_stream_data_blocked_lost(id),
            SentFrame::StreamsBlocked(dir) => self.streams.on_streams_blocked_lost(dir),
            SentFrame::NewConnectionId { sequence } => self.local_cids.on_lost(sequence),
            SentFrame::RetireConnectionId { sequence } => self.remote_cids.on_lost(sequence),
            SentFrame::HandshakeDone => self.handshake.on_done_lost(),
            SentFrame::AckFrequency { sequence } => self.acks.request.on_lost(sequence),
            SentFrame::Datagrams { count } => self.datagrams.on_lost(count),
            SentFrame::TrackedDatagram { id } => self.datagrams.on_tracked_lost(id, self.events),
            SentFrame::Ack { .. } | SentFrame::Ping => {}
        }
    }

    /// What is sent again is sent with the probe. Datagrams never are, and may arrive yet.
    fn on_probe(&mut self, frame: SentFrame) {
        let datagram = matches!(
            frame,
            SentFrame::Datagrams { .. } | SentFrame::TrackedDatagram { .. }
        );
        if !datagram {
            self.on_lost(0, frame);
        }
    }
}
