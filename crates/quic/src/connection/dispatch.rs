//! Each frame of an opened packet goes to its owner (RFC 9000 §12.4, table 3).

use std::time::Duration;

use towline_wire::{
    AckFrame, ConnectionId, Frame, FrameType, NewConnectionIdFrame, PacketKind, PacketNumberSpace,
    Reader, Side, Time, TransportErrorCode,
};

use super::acks::PathView;
use super::parts::Connection;
use crate::error::{Refused, Violation};

/// What an opened packet turned out to hold.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) ack_eliciting: bool,
    /// CRYPTO data arrived: TLS should be driven.
    pub(super) crypto: bool,
    pub(super) stream_data: bool,
    /// The peer closed; nothing after it counts.
    pub(super) closed: bool,
}

/// Cap: units of work that a packet's frames may ask for, besides [`BYTE_WORK`] for each byte. Beyond it
/// the packet counts as lost. A unit is about one record looked at.
const MAX_PACKET_WORK: u64 = 512;

/// Units for each byte: a range of an ACK frame takes two bytes, and a search among what was sent.
const BYTE_WORK: u64 = 16;

/// Units that a frame takes whatever it says: more than a byte earns, so that a packet of one-byte
/// frames, which no honest peer sends, does not go far.
const FRAME_WORK: u64 = 20;

/// Units that a packet takes before its first frame: decryption and what is noted of it. They are paid
/// for by its bytes, and no part of its budget.
pub(super) const PACKET_WORK: u64 = 200;

/// Units of work a packet with so many bytes of frames may ask for.
fn packet_work(len: usize) -> u64 {
    MAX_PACKET_WORK + BYTE_WORK * len as u64
}

impl Connection {
    /// Hands every frame of `payload` to its owner.
    ///
    /// What was processed before a fault is not undone: a fault ends the connection (RFC 9000
    /// §5.2), and only a packet whose frames were all processed is acknowledged (§13.1).
    pub(super) fn dispatch(
        &mut self,
        now: Time,
        kind: PacketKind,
        dcid: &ConnectionId,
        payload: &[u8],
    ) -> Result<Contents, Refused> {
        if payload.is_empty() {
            return Err(Violation::protocol("a packet without frames").into());
        }
        let mut contents = Contents::default();
        let budget = self.received.work + packet_work(payload.len());
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let frame = Frame::parse(&mut reader).map_err(Violation::from)?;
            let frame_type = frame.ty();
            if !frame_type.permitted(kind) {
                return Err(Violation::protocol("frame not allowed in this packet type")
                    .in_frame(frame_type)
                    .into());
            }
            contents.ack_eliciting |= frame.ack_eliciting();
            self.dispatch_frame(now, kind.space(), dcid, frame, &mut contents)
                .map_err(|refused| match refused {
                    Refused::Violation(v) => Refused::Violation(v.in_frame(frame_type)),
                    Refused::Overflow => Refused::Overflow,
                })?;
            if contents.closed {
                break;
            }
            self.received.work += FRAME_WORK;
            if self.received.work > budget {
                self.received.overworked += 1;
                return Err(Refused::Overflow);
            }
        }
        Ok(contents)
    }

    /// One list: every frame, and the one who owns it.
    fn dispatch_frame(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        dcid: &ConnectionId,
        frame: Frame<'_>,
        contents: &mut Contents,
    ) -> Result<(), Refused> {
        let events = &mut self.events;
        match frame {
            Frame::Stream(stream) => {
                contents.stream_data = true;
                self.streams.on_stream(now, &stream, events)?;
            }
            Frame::Ack(ack) => self.on_ack(now, space, &ack)?,
            // DATA_BLOCKED asks for nothing that is not sent anyway.
            Frame::Padding { .. } | Frame::Ping | Frame::DataBlocked(_) => {}
            Frame::StreamsBlocked { direction, limit } => {
                self.streams.on_streams_blocked(direction, limit);
            }
            Frame::Crypto { offset, data } => {
                self.handshake.on_crypto(space, offset, data)?;
                contents.crypto = true;
            }
            Frame::Datagram { data } => self.on_datagram(data)?,
            Frame::MaxData(max) => self.streams.on_max_data(max),
            Frame::MaxStreamData { id, max } => {
                self.streams.on_max_stream_data(id, max, events)?;
            }
            Frame::MaxStreams { direction, max } => {
                self.streams.on_max_streams(direction, max, events);
            }
            Frame::StreamDataBlocked { id, .. } => {
                self.streams.on_stream_data_blocked(id, events)?;
            }
            Frame::ResetStream { .. } | Frame::ResetStreamAt { .. } => {
                contents.stream_data = true;
                self.on_reset_stream(&frame)?;
            }
            Frame::StopSending { id, error_code } => {
                self.streams.on_stop_sending(id, error_code, events)?;
            }
            Frame::NewConnectionId(new) => self.on_new_connection_id(&new)?,
            Frame::RetireConnectionId { sequence } => {
                self.local_cids.on_retire(sequence, *dcid)?;
            }
            // Whatever the size of its datagram (RFC 9000 §8.2.1).
            Frame::PathChallenge(data) => self.paths.on_path_challenge(now, data),
            Frame::PathResponse(data) => self.on_path_response(now, data),
            Frame::NewToken { .. } => self.only_from_a_server("NEW_TOKEN from a client")?,
            Frame::HandshakeDone => {
                self.only_from_a_server("HANDSHAKE_DONE from a client")?;
                self.confirm(now);
            }
            Frame::AckFrequency(frame) => {
                self.ack_frequency_advertised()?;
                self.acks.on_ack_frequency(now, &frame)?;
            }
            Frame::ImmediateAck => {
                self.ack_frequency_advertised()?;
                self.acks.on_immediate_ack();
            }
            Frame::ConnectionClose(close) => {
                contents.closed = true;
                self.on_peer_close(now, &close);
            }
        }
        Ok(())
    }

    /// RESET_STREAM says what RESET_STREAM_AT says with a reliable size of 0.
    fn on_reset_stream(&mut self, frame: &Frame<'_>) -> Result<(), Violation> {
        let (id, code, final_size, reliable_size) = match *frame {
            Frame::ResetStream {
                id,
                error_code,
                final_size,
            } => (id, error_code, final_size, 0),
            Frame::ResetStreamAt {
                id,
                error_code,
                final_size,
                reliable_size,
            } => (id, error_code, final_size, reliable_size),
            _ => return Ok(()),
        };
        let events = &mut self.events;
        self.streams
            .on_reset_stream(id, code, final_size, reliable_size, events)
    }

    fn on_datagram(&mut self, data: &[u8]) -> Result<(), Violation> {
        let limit = self.config.max_datagram_frame_size.map_or(0, usize::from);
        if limit == 0 || data.len() >= limit {
            return Err(Violation::protocol("datagram larger than advertised"));
        }
        self.datagrams.on_received(data, &mut self.events);
        Ok(())
    }

    fn on_new_connection_id(&mut self, new: &NewConnectionIdFrame) -> Result<(), Violation> {
        let before = self.datagram_room();
        self.remote_cids
            .on_new(new.sequence, new.retire_prior_to, new.cid, new.reset_token)?;
        // The one in use may have been retired.
        self.paths
            .set_active_cid(self.remote_cids.current_sequence());
        // A longer ID leaves less room, and a datagram is never split (RFC 9221 §5).
        let room = self.datagram_room();
        if room < before {
            self.datagrams.drop_larger_than(room, &mut self.events);
        }
        Ok(())
    }

    /// A server takes no frame that only servers send.
    fn only_from_a_server(&self, what: &'static str) -> Result<(), Violation> {
        match self.side {
            Side::Client => Ok(()),
            Side::Server => Err(Violation::protocol(what)),
        }
    }

    fn on_ack(
        &mut self,
        now: Time,
        space: PacketNumberSpace,
        ack: &AckFrame<'_>,
    ) -> Result<(), Violation> {
        let exponent = self.handshake.ack_delay_exponent(space);
        let micros = ack.delay.saturating_mul(1 << exponent);
        let in_flight = self.paths.state().bytes_in_flight();
        let size = self.paths.state().max_datagram_size();
        let (recovery, path, mut owner) = self.split_for_delivery();
        let result = recovery.on_ack_received(
            path,
            now,
            space,
            ack.largest,
            Duration::from_micros(micros),
            ack.ecn,
            ack.ranges(),
            &mut owner,
        );
        owner.finish();
        let summary = result.map_err(|_| {
            Violation::new(
                TransportErrorCode::PROTOCOL_VIOLATION,
                "acknowledges a packet that was never sent",
            )
            .in_frame(FrameType::ACK)
        })?;
        self.received.work += u64::from(summary.work_in_vain);
        self.note_datagram_size(size);
        if self.is_observed() {
            self.observe_ack(now, space, &summary);
        }
        match space {
            PacketNumberSpace::Initial => {}
            PacketNumberSpace::Handshake => {
                // RFC 9002 §6.2.2.1: the server has validated our address.
                self.paths
                    .state_mut()
                    .set_peer_completed_address_validation();
            }
            PacketNumberSpace::Application => {
                if let Some(largest) = summary.largest_newly_acked {
                    self.sealer.protection.on_acked(largest);
                }
                if self.acks.request.is_open() {
                    let packets = summary.newly_acked_packets.max(1);
                    self.review_ack_frequency(in_flight, summary.newly_acked_bytes / packets);
                }
                if self.handshake.take_done_acked() {
                    self.leave_handshake_behind();
                }
            }
        }
        Ok(())
    }

    /// Frames of an extension we did not offer are unknown frames (RFC 9000 §12.4).
    fn ack_frequency_advertised(&self) -> Result<(), Violation> {
        if self.config.ack_frequency {
            return Ok(());
        }
        Err(Violation::new(
            TransportErrorCode::FRAME_ENCODING_ERROR,
            "frame of an extension that was not offered",
        ))
    }

    /// Window, round trip or phase of the controller may call for other ACKs, and so may what was
    /// under way before this one.
    fn review_ack_frequency(&mut self, in_flight: u64, packet_size: u64) {
        let path = self.paths.state();
        let datagram = u64::from(path.max_datagram_size());
        self.acks.request.on_path(PathView {
            window_packets: path.congestion_window() / datagram,
            smoothed_rtt: path.rtt().smoothed(),
            least_acks_per_round: path.least_ack_rate().per_round,
            window: path.congestion_window(),
            in_flight,
            packet_size,
        });
        self.paths
            .state_mut()
            .set_peer_max_ack_delay(self.acks.request.max_ack_delay());
    }
}
