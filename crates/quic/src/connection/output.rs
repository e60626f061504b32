//! How a train of datagrams comes about.
//!
//! 0. `transmit_probe`: what asks or answers on a single path goes first, in datagrams of its own.
//! 1. `poll_transmit`: is there room in the train, and may this path take another datagram?
//! 2. `grant`: probes, congestion window and pacing say whether data may go.
//! 3. `write_datagram`: at most one packet for each space, frames by `schedule`, in place.
//! 4. padding, sealing, and recovery is told.

use std::net::{IpAddr, SocketAddr};

use towline_recovery::{PacketKind as SentKind, Permit};
use towline_wire::{
    CONNECTION_CLOSE_MAX_LEN, ConnectionId, PacketNumberSpace, Side, Time, Writer,
    packet_number_len, write_connection_close, write_immediate_ack, write_ping,
};

use super::assemble::{HeaderFields, MIN_INITIAL_DATAGRAM, PacketBuilder, TrainBuf};
use super::component::{Ecn, PacketWriter, SentFrame};
use super::parts::Connection;
use super::paths::{FULL_PROBE, Which};
use super::state::{MAX_CLOSE_REASON, Phase};

/// Where the datagrams of a [`TrainBuf`] go, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) segment_size: usize,
    pub(crate) len: usize,
    pub(crate) mtu_probe: bool,
}

/// A packet that whole DATAGRAM frames fill may be so much shorter than there is room. Where another
/// follows at once it was full however short it is.
const NEARLY_FULL: usize = 8;

/// What may be sent now. Asked for once a train, and again when it is used up.
#[derive(Clone, Copy, Debug)]
struct Grant {
    data: bool,
    /// Bytes of packets in flight that may still leave on it.
    credit: u64,
    /// A peer that acknowledges nothing gets no more of what only costs memory here.
    acks: bool,
    probe: Option<PacketNumberSpace>,
    /// The window would take more: having nothing to send then means application-limited.
    window_open: bool,
    /// A probe for larger datagrams goes first, alone.
    mtu_probe: Option<u16>,
    /// A rate limit forbids even what needs no permit.
    held: bool,
    paced_until: Option<Time>,
}

impl Grant {
    /// It does not cover another datagram of this size, or a probe was answered.
    fn is_used_up(&self, datagram: usize) -> bool {
        self.probe.is_some() || (self.data && self.credit < datagram as u64)
    }
}

impl Connection {
    /// Builds the next train; `None` when there is nothing to send now.
    pub(crate) fn poll_transmit(&mut self, now: Time, train: &mut TrainBuf) -> Option<Train> {
        let _span = self.enter_span();
        train.clear();
        // One codepoint for the whole train: the system sends it in one call.
        self.paths.state_mut().mark_train();
        match self.lifecycle.phase() {
            Phase::Handshaking | Phase::Established | Phase::Confirmed => {
                if self.paths.has_probe()
                    && let Some(which) = self.paths.next_probe()
                    && let Some(probe) = self.transmit_probe(now, which, train)
                {
                    return Some(probe);
                }
                self.build_train(now, train);
                if self.lifecycle.is_close_due() {
                    // Sealing failed or a limit was reached: a CONNECTION_CLOSE goes instead.
                    return self.transmit_close(now, train);
                }
                if self.paths.has_pending()
                    && train.filled().is_empty()
                    && self.paths.may_answer_alone(now)
                {
                    return self.transmit_probe(now, Which::Active, train);
                }
            }
            Phase::Closing => return self.transmit_close(now, train),
            // RFC 9000 §10.2.2.
            Phase::Draining | Phase::Drained => return None,
        }
        self.finish_train(train)
    }

    /// One datagram with the challenge or the answer that is due on a path. It counts in no window:
    /// there are four for each path that is asked, and answers in proportion to what came.
    #[cold]
    fn transmit_probe(&mut self, now: Time, which: Which, train: &mut TrainBuf) -> Option<Train> {
        self.before_one_rtt_packet(now);
        if !self.lifecycle.is_open() {
            return None;
        }
        let path = self.paths.get(which)?;
        let (remote, local_ip, cid) = (path.remote(), path.local_ip(), path.cid);
        let budget = usize::try_from(path.budget()).unwrap_or(usize::MAX);
        let Some(dcid) = self.remote_cids.get(cid) else {
            self.replace_retired_cid(which);
            return None;
        };
        let room = train.next_room(budget.min(FULL_PROBE))?;
        let capacity = room.len();
        let space = PacketNumberSpace::Application;
        let mut packet = self.begin_packet(room, 0, space, dcid)?;
        let mut writer = Writer::new(packet.payload_room(room));
        let challenge = self.paths.write_probe(which, &mut writer);
        packet.advance(writer.len());
        packet.ack_eliciting = true;
        packet.in_flight = true;
        // Where less than a full datagram may be sent, the rest is kept (RFC 9000 §8.2.1).
        if capacity >= FULL_PROBE {
            packet.pad_to(room, FULL_PROBE);
        }
        packet.pad_for_sample(room);
        if let Err(what) = self.seal(now, &packet, room) {
            self.fail_internally(now, what);
            return None;
        }
        let len = packet.end();
        let frames = self.sealer.begin_frames(space);
        self.sealer.note_frames(space, frames);
        let path = self.paths.get_mut(which)?;
        path.state.leave_unmarked();
        let kind = SentKind::PROBE;
        let (recovery, frames) = (&mut self.recovery, self.sealer.frames(space));
        recovery.on_packet_sent(&mut path.state, now, space, len as u16, kind, frames);
        self.paths.on_probe_sent(now, which, challenge, len);
        self.on_ack_eliciting_sent(now);
        train.commit(len, capacity);
        self.sealer.on_train(1);
        Some(Train {
            remote,
            local_ip,
            ecn: None,
            segment_size: len,
            len,
            mtu_probe: false,
        })
    }

    /// Whether the application may have given it something to send.
    pub(crate) fn may_send(&self) -> bool {
        self.lifecycle.phase() != Phase::Confirmed
            || self.has_pending(PacketNumberSpace::Application)
            || self.paths.has_probe()
    }

    /// Whether `poll_transmit` is worth a call. Where nothing waits, what the call would note is
    /// noted here.
    pub(crate) fn wants_turn(&mut self, now: Time) -> bool {
        let space = PacketNumberSpace::Application;
        if self.may_send() || self.acks.is_due(now, space) || self.recovery.probes_owed(space) > 0 {
            return true;
        }
        let grant = self.grant(now);
        self.note_idle_output(grant);
        false
    }

    fn finish_train(&mut self, train: &TrainBuf) -> Option<Train> {
        let len = train.filled().len();
        if len == 0 {
            return None;
        }
        self.sealer.on_train(train.segments());
        let path = self.paths.state_mut();
        let size = usize::from(path.max_datagram_size());
        if train.segments() > 1 || train.segment_size() + NEARLY_FULL >= size {
            path.on_full_sized_sent(train.segments());
        }
        Some(Train {
            remote: self.paths.remote(),
            local_ip: self.paths.local_ip(),
            ecn: self.paths.state().is_train_marked().then_some(Ecn::Ect0),
            segment_size: train.segment_size(),
            len,
            mtu_probe: train.segment_size() > size,
        })
    }

    /// Size of the next datagram; the smallest there is until the address is proven, so that three
    /// times a client's first one are always enough for some (RFC 9000 §8.1, §14.1).
    fn datagram_capacity(&self) -> usize {
        if self.paths.budget() == u64::MAX {
            usize::from(self.paths.state().max_datagram_size())
        } else {
            MIN_INITIAL_DATAGRAM
        }
    }

    fn build_train(&mut self, now: Time, train: &mut TrainBuf) {
        let mut mtu = self.datagram_capacity();
        let mut grant = self.grant(now);
        if grant.probe.is_some() {
            mtu = mtu.min(self.paths.state().safe_datagram_size().into());
        }
        if let Some(size) = grant.mtu_probe {
            return self.build_mtu_probe(now, size.into(), train);
        }
        while let Some(room) = train.next_room(mtu) {
            let capacity = room.len();
            if self.paths.budget() < capacity as u64 {
                self.paths.state_mut().set_amplification_blocked(now, true);
                return;
            }
            if grant.is_used_up(capacity) {
                grant = self.grant(now);
                if grant.mtu_probe.is_some() {
                    // Another call's.
                    return;
                }
            }
            let len = self.write_datagram(now, room, grant);
            if len == 0 {
                self.note_idle_output(grant);
                return;
            }
            grant.credit = grant.credit.saturating_sub(len as u64);
            train.commit(len, capacity);
            self.paths.on_sent(len);
        }
    }

    /// A datagram of PADDING and a PING alone (RFC 9000 §14.4): whether it arrives says what the path
    /// carries.
    fn build_mtu_probe(&mut self, now: Time, size: usize, train: &mut TrainBuf) {
        let space = PacketNumberSpace::Application;
        self.before_one_rtt_packet(now);
        let Some(room) = train.next_room(size).filter(|_| self.lifecycle.is_open()) else {
            return;
        };
        let dcid = self.remote_cids.current();
        let Some(mut packet) = self.begin_packet(room, 0, space, dcid) else {
            return;
        };
        let mut frames = self.sealer.begin_frames(space);
        let mut writer = Writer::new(packet.payload_room(room));
        let mut w = PacketWriter::new(&mut writer, &mut frames, true);
        write_ping(w.w);
        w.record(SentFrame::Ping);
        if self.acks.request.is_open() {
            write_immediate_ack(w.w);
        }
        packet.advance(writer.len());
        self.sealer.note_frames(space, frames);
        packet.pad_to(room, size);
        packet.ack_eliciting = true;
        packet.mtu_probe = true;
        if let Err(what) = self.seal(now, &packet, room) {
            return self.fail_internally(now, what);
        }
        self.on_packet_sent(now, &packet);
        train.commit(size, size);
        self.paths.on_sent(size);
    }

    /// Nothing was written although something was granted, or the other way round.
    fn note_idle_output(&mut self, grant: Grant) {
        let pending = PacketNumberSpace::ALL
            .into_iter()
            .any(|s| self.sealer.protection.has_keys(s) && self.has_pending(s));
        if pending && grant.paced_until.is_some() {
            self.recovery.on_held_back(self.paths.state_mut());
        }
        let wakes = pending || grant.held;
        self.liveness
            .set_pacing(grant.paced_until.filter(|_| wakes));
        let window_open = grant.window_open || (grant.paced_until.is_some() && !grant.held);
        if window_open && !pending {
            self.paths.state_mut().on_app_limited();
        }
    }

    fn grant(&mut self, now: Time) -> Grant {
        let owed = PacketNumberSpace::ALL
            .into_iter()
            .find(|&s| self.sealer.protection.has_keys(s) && self.recovery.probes_owed(s) > 0);
        // What asks whether a silent path is back does not wait for a window that only an answer
        // opens; it is a PING and no data.
        let ask = self
            .liveness
            .is_probing()
            .then_some(PacketNumberSpace::Application);
        let mtu_probe = self.mtu_probe_due(now).filter(|_| owed.is_none());
        let path = self.paths.state_mut();
        let size = mtu_probe.unwrap_or(path.max_datagram_size());
        let (credit, paced_until) = match self.recovery.permit_size(path, now, size) {
            Permit::Send { bytes } => (bytes, None),
            Permit::Wait(at) => (0, Some(at)),
            Permit::Blocked => (0, None),
        };
        let open = credit > 0;
        let size = self.paths.state().max_datagram_size();
        if !open && let Some(at) = self.recovery.held_until(self.paths.state_mut(), now, size) {
            return Grant {
                data: false,
                credit: 0,
                acks: false,
                probe: None,
                window_open: false,
                mtu_probe: None,
                held: true,
                paced_until: Some(at),
            };
        }
        Grant {
            data: open || owed.is_some(),
            credit,
            acks: !self.recovery.is_full(),
            probe: owed.or(ask),
            window_open: open,
            mtu_probe: mtu_probe.filter(|_| open),
            held: false,
            paced_until,
        }
    }

    /// The size of a probe for larger datagrams that should leave now: only while there is data to
    /// send in them.
    fn mtu_probe_due(&mut self, now: Time) -> Option<u16> {
        let size = self.recovery.mtu_probe_due(self.paths.state_mut(), now)?;
        let is_wanted =
            self.paths.budget() == u64::MAX && self.has_pending(PacketNumberSpace::Application);
        is_wanted.then_some(size)
    }

    /// Fills one datagram; returns its length, 0 if there is nothing to send.
    fn write_datagram(&mut self, now: Time, datagram: &mut [u8], grant: Grant) -> usize {
        let handshaking = self.sealer.protection.has_keys(PacketNumberSpace::Initial)
            || self
                .sealer
                .protection
                .has_keys(PacketNumberSpace::Handshake)
            || !self.lifecycle.is_established();
        if handshaking {
            self.write_coalesced(now, datagram, grant)
        } else {
            self.write_one_rtt(now, datagram, grant)
        }
    }

    /// A datagram of one 1-RTT packet.
    fn write_one_rtt(&mut self, now: Time, datagram: &mut [u8], grant: Grant) -> usize {
        let space = PacketNumberSpace::Application;
        if !self.is_wanted(now, space, grant) {
            return 0;
        }
        let probing = grant.probe == Some(space);
        let Some(mut packet) = self.write_packet(now, datagram, 0, space, grant.data, probing)
        else {
            return 0;
        };
        if packet.expand && packet.end() < MIN_INITIAL_DATAGRAM {
            packet.pad_to(datagram, MIN_INITIAL_DATAGRAM);
        }
        if let Err(what) = self.seal(now, &packet, datagram) {
            self.fail_internally(now, what);
            return 0;
        }
        self.on_packet_sent(now, &packet);
        packet.end()
    }

    /// Whether a packet of `space` should be written, if only for its acknowledgement.
    fn is_wanted(&self, now: Time, space: PacketNumberSpace, grant: Grant) -> bool {
        grant.probe == Some(space)
            || (grant.data && self.has_pending(space))
            || (grant.acks && self.acks.is_due(now, space))
    }

    /// A datagram during the handshake: a packet of every space that has something to say.
    fn write_coalesced(&mut self, now: Time, datagram: &mut [u8], grant: Grant) -> usize {
        let mut packets: [Option<PacketBuilder>; 3] = [None; 3];
        let mut end = 0;
        for space in PacketNumberSpace::ALL {
            if !self.sealer.protection.has_keys(space)
                || (space == PacketNumberSpace::Application && !self.lifecycle.is_established())
            {
                continue;
            }
            if !self.is_wanted(now, space, grant) {
                continue;
            }
            let probing = grant.probe == Some(space);
            if let Some(packet) = self.write_packet(now, datagram, end, space, grant.data, probing)
            {
                end = packet.end();
                packets[space.index()] = Some(packet);
            }
        }
        // Ack-eliciting frames run beside it, so that padding in flight is acknowledged (RFC 9000
        // §13.2.7).
        let needs_padding = packets[0]
            .is_some_and(|p| self.side == Side::Client || p.ack_eliciting)
            || packets[2].is_some_and(|p| p.expand);
        if needs_padding
            && end < MIN_INITIAL_DATAGRAM
            && let Some(last) = packets.iter_mut().flatten().last()
        {
            last.pad_to(datagram, MIN_INITIAL_DATAGRAM);
            end = last.end();
        }
        for packet in packets.into_iter().flatten() {
            if let Err(what) = self.seal(now, &packet, datagram) {
                self.fail_internally(now, what);
                return 0;
            }
            self.on_packet_sent(now, &packet);
        }
        end
    }

    /// Writes one unsealed packet at `start`; `None` if it would carry nothing.
    fn write_packet(
        &mut self,
        now: Time,
        datagram: &mut [u8],
        start: usize,
        space: PacketNumberSpace,
        may_send_data: bool,
        probing: bool,
    ) -> Option<PacketBuilder> {
        if space == PacketNumberSpace::Application {
            self.before_one_rtt_packet(now);
            if !self.lifecycle.is_open() {
                return None;
            }
        }
        let dcid = self.remote_cids.current();
        let mut packet = self.begin_packet(datagram, start, space, dcid)?;
        let mut frames = self.sealer.begin_frames(space);
        let mut writer = Writer::new(packet.payload_room(datagram));
        let mut w = PacketWriter::new(&mut writer, &mut frames, may_send_data);
        // Behind a packet of another space it may be padded.
        w.may_end = start == 0 && space == PacketNumberSpace::Application;
        self.write_frames(now, space, &mut w);
        // A PING beside an acknowledgement costs a byte, and asks whether what we send arrives.
        packet.asks = !probing
            && w.holds_only_an_ack()
            && w.remaining() > 0
            && space == PacketNumberSpace::Application
            && self.paths.state().may_ask(now);
        if (probing && !w.ack_eliciting && w.remaining() > 0) || packet.asks {
            write_ping(w.w);
            w.record(SentFrame::Ping);
            if space == PacketNumberSpace::Application {
                self.liveness.on_asked();
            }
        }
        packet.ack_eliciting = w.ack_eliciting;
        packet.in_flight = w.ack_eliciting;
        packet.expand = w.expand_datagram;
        packet.ended = w.ended;
        debug_assert!(!writer.overflowed(), "a component wrote beyond its room");
        packet.advance(writer.len());
        self.sealer.note_frames(space, frames);
        if packet.is_empty() {
            return None;
        }
        packet.pad_for_sample(datagram);
        if space == PacketNumberSpace::Application {
            packet.pad_for_reset(datagram, self.handshake.ids().local.len());
        }
        Some(packet)
    }

    fn begin_packet(
        &self,
        datagram: &mut [u8],
        start: usize,
        space: PacketNumberSpace,
        dcid: ConnectionId,
    ) -> Option<PacketBuilder> {
        let packet_number = self.recovery.next_packet_number(space);
        let header = HeaderFields {
            space,
            dcid,
            scid: self.handshake.ids().local,
            // Empty on a server (RFC 9000 §17.2.2).
            token: self.handshake.token(),
            packet_number,
            pn_len: packet_number_len(packet_number, self.recovery.largest_acked(space)),
            key_phase: self.sealer.protection.phase(),
        };
        let packet = PacketBuilder::begin(datagram, start, &header)?;
        // The sample and a frame must fit, or the packet waits for the next datagram.
        (packet.end() + 4 < datagram.len()).then_some(packet)
    }

    /// Key updates happen between packets.
    fn before_one_rtt_packet(&mut self, now: Time) {
        if self.sealer.protection.confidentiality_exhausted() {
            self.fail_aead_limit(now);
        } else if self.lifecycle.is_confirmed()
            && self
                .sealer
                .protection
                .wants_update(self.config.key_update_interval)
        {
            self.sealer.protection.initiate_update();
        }
    }

    /// Seals a packet in place. An error is fatal.
    #[inline]
    fn seal(
        &mut self,
        now: Time,
        packet: &PacketBuilder,
        datagram: &mut [u8],
    ) -> Result<(), &'static str> {
        if self.is_observed() {
            self.observe_packet_sent(now, packet, datagram);
        }
        self.sealer.seal(packet, datagram)
    }

    fn on_packet_sent(&mut self, now: Time, packet: &PacketBuilder) {
        let space = packet.space;
        let kind = SentKind {
            ack_eliciting: packet.ack_eliciting,
            in_flight: packet.in_flight,
            asks: packet.asks,
            mtu_probe: packet.mtu_probe,
        };
        let frames = self.sealer.frames(space);
        let number = self.recovery.on_packet_sent(
            self.paths.state_mut(),
            now,
            space,
            packet.size() as u16,
            kind,
            frames,
        );
        debug_assert_eq!(number, packet.packet_number);
        if packet.ack_eliciting {
            self.on_ack_eliciting_sent(now);
        }
        if space == PacketNumberSpace::Handshake && self.side == Side::Client {
            // RFC 9001 §4.9.1: a client drops Initial keys when it first sends a Handshake packet.
            self.discard_space(now, PacketNumberSpace::Initial);
        }
    }

    fn on_ack_eliciting_sent(&mut self, now: Time) {
        if !self.liveness.heeds_sending() {
            return;
        }
        let pto = self.paths.state().pto(PacketNumberSpace::Application);
        self.liveness.on_ack_eliciting_sent(now, pto);
    }

    /// One datagram with CONNECTION_CLOSE in every space the peer may be able to read.
    fn transmit_close(&mut self, now: Time, train: &mut TrainBuf) -> Option<Train> {
        if !self.lifecycle.is_close_due() {
            return None;
        }
        train.clear();
        let mtu = self.datagram_capacity();
        let room = train.next_room(mtu)?;
        if self.paths.budget() < room.len() as u64 {
            return None;
        }
        let capacity = room.len();
        let len = self.write_close(now, room);
        self.lifecycle.on_close_sent();
        if len == 0 {
            return None;
        }
        train.commit(len, capacity);
        self.paths.on_sent(len);
        self.finish_train(train)
    }

    fn write_close(&mut self, now: Time, datagram: &mut [u8]) -> usize {
        let mut packets: [Option<PacketBuilder>; 3] = [None; 3];
        let mut end = 0;
        for space in PacketNumberSpace::ALL {
            let one_rtt = space == PacketNumberSpace::Application;
            // A server's 1-RTT keys are of no use to a client that has not finished.
            let readable = !one_rtt || self.handshake.is_complete() || self.side == Side::Server;
            if !self.sealer.protection.has_keys(space) || !readable {
                continue;
            }
            let dcid = self.remote_cids.current();
            let Some(mut packet) = self.begin_packet(datagram, end, space, dcid) else {
                continue;
            };
            let Some(close) = self.lifecycle.close_frame(one_rtt) else {
                continue;
            };
            let room = packet.payload_room(datagram);
            let close_len = CONNECTION_CLOSE_MAX_LEN + close.reason.len().min(MAX_CLOSE_REASON);
            let Some(beside) = room.len().checked_sub(close_len) else {
                continue;
            };
            // What arrived before is acknowledged with every copy: the peer may wait to know it.
            let mut frames = self.sealer.begin_frames(space);
            let mut writer = Writer::new(&mut room[..beside]);
            let mut w = PacketWriter::new(&mut writer, &mut frames, false);
            self.acks.write_again(now, space, &mut w);
            let acknowledged = writer.len();
            self.sealer.note_frames(space, frames);
            let mut writer = Writer::new(&mut room[acknowledged..]);
            write_connection_close(&mut writer, &close);
            packet.advance(acknowledged + writer.len());
            packet.pad_for_sample(datagram);
            end = packet.end();
            packets[space.index()] = Some(packet);
        }
        if packets[0].is_some()
            && self.side == Side::Client
            && end < MIN_INITIAL_DATAGRAM
            && let Some(last) = packets.iter_mut().flatten().last()
        {
            last.pad_to(datagram, MIN_INITIAL_DATAGRAM);
            end = last.end();
        }
        for packet in packets.into_iter().flatten() {
            if self.seal(now, &packet, datagram).is_err() {
                return 0;
            }
            let kind = SentKind::ACK_ONLY;
            let frames = self.sealer.frames(packet.space);
            frames.clear();
            self.recovery.on_packet_sent(
                self.paths.state_mut(),
                now,
                packet.space,
                packet.size() as u16,
                kind,
                frames,
            );
        }
        end
    }
}
