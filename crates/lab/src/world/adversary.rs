//! A receiver that speaks QUIC as it should, but for its acknowledgements.
//!
//! It sits between an honest host and the network of a plaintext world, and rewrites the ACK
//! frames of the 1-RTT packets that the host sends to one peer, its victim. It also sees what the
//! victim sends, so it knows which numbers were never used. Called by the world for every datagram
//! between the two; it adds no packet of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use towline_wire::{
    AckFrame, EcnCounts, Frame, Header, Reader, Time, Writer, decode_packet_number, write_ack,
};

use super::numbers::Numbers;
use super::watch::{NULL_TAG, for_each_packet};
use crate::random::Random;

/// How an adversary acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckPlan {
    /// Everything up to a gap is acknowledged once the gap is this old.
    pub hide: Option<Duration>,
    /// It somehow knows which numbers were never sent, and claims none of them.
    pub knowing: bool,
    /// Every other gap is acknowledged by itself, at most this long after it was seen.
    pub late: Option<Duration>,
    /// An ACK frame for each range or packet, as many as there is room for.
    pub split: Option<Split>,
    /// At most one acknowledgement in this time.
    pub stretch: Option<Duration>,
}

/// How ACK frames are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// A frame for each packet number, not for each range.
    pub by_packet: bool,
    /// The largest number comes last, so that every frame raises it.
    pub ascending: bool,
}

/// Least time before a gap is claimed by itself.
const LEAST_LATE: f64 = 0.02;

/// Bytes of a datagram that always arrive.
const SMALLEST_DATAGRAM: usize = 1200;

/// Bytes an ACK frame of one range takes at most, in a connection of this size.
const SMALL_ACK: usize = 16;

/// Bytes that header protection needs of number and payload together (RFC 9001 §5.4.2).
const LEAST_SEALED: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Gap {
    noticed: Time,
    /// When it is claimed by itself, if ever.
    late: Option<Time>,
}

/// The liar between a host and the network.
#[derive(Debug)]
pub(super) struct Adversary {
    plan: AckPlan,
    random: Random,
    /// What the victim sent.
    sent: Numbers,
    /// What the host acknowledged.
    true_acks: Numbers,
    /// What the victim is told.
    shown: Numbers,
    gaps: BTreeMap<u64, Gap>,
    last_ack: Option<Time>,
    lied: bool,
}

impl Adversary {
    pub(super) fn new(plan: AckPlan, seed: u64) -> Self {
        Self {
            plan,
            random: Random::new(seed, 0),
            sent: Numbers::default(),
            true_acks: Numbers::default(),
            shown: Numbers::default(),
            gaps: BTreeMap::new(),
            last_ack: None,
            lied: false,
        }
    }

    /// It acknowledged something its host never received.
    pub(super) fn has_lied(&self) -> bool {
        self.lied
    }

    /// The victim sent `datagram`.
    pub(super) fn on_victim_sent(&mut self, datagram: &[u8]) {
        let sent = &mut self.sent;
        each_one_rtt(datagram, |packet| {
            let last = sent.last();
            let number = decode_packet_number(packet.truncated(), packet.pn_len, last);
            sent.insert(number, number);
        });
    }

    /// Whether `datagram`, on its way to the victim, acknowledges a number that was never sent.
    pub(super) fn claims_unsent(&self, datagram: &[u8]) -> bool {
        let mut found = false;
        each_one_rtt(datagram, |packet| {
            each_ack(packet.payload, |ack| {
                found |= ack
                    .ranges()
                    .any(|range| !self.sent.covers(*range.start(), *range.end()));
            });
        });
        found
    }

    /// What goes out in the place of `datagram`; `None`: nothing.
    pub(super) fn rewrite(&mut self, now: Time, datagram: &[u8]) -> Option<Vec<u8>> {
        let room = datagram.len().max(SMALLEST_DATAGRAM);
        let mut rewritten = None;
        each_one_rtt(datagram, |packet| {
            each_ack(packet.payload, |ack| self.on_true_ack(now, ack));
            // What travels with packets of the handshake stays as it is.
            if packet.bytes.len() == datagram.len() {
                rewritten = Some(self.rewrite_packet(now, &packet, room));
            }
        });
        match rewritten {
            Some(bytes) => (!bytes.is_empty()).then_some(bytes),
            None => Some(datagram.to_vec()),
        }
    }

    /// Takes what the host acknowledges, and notices gaps.
    fn on_true_ack(&mut self, now: Time, ack: &AckFrame<'_>) {
        let before = self.true_acks.last();
        for range in ack.ranges() {
            let (first, last) = range.into_inner();
            self.true_acks.insert(first, last);
            self.shown.insert(first, last);
            let filled: Vec<u64> = self.gaps.range(first..=last).map(|(n, _)| *n).collect();
            for number in filled {
                self.gaps.remove(&number);
            }
        }
        for number in before.map_or(ack.largest, |n| n + 1)..ack.largest {
            if self.true_acks.covers(number, number) {
                continue;
            }
            let late = self.plan.late.filter(|_| self.random.chance(0.5));
            let late = late.map(|most| {
                let most = most.as_secs_f64().max(2.0 * LEAST_LATE);
                now + self.random.log_duration(LEAST_LATE, most)
            });
            self.gaps.insert(number, Gap { noticed: now, late });
        }
    }

    /// Claims the gaps whose time has come.
    fn claim(&mut self, now: Time) {
        let hidden_to = self.plan.hide.and_then(|age| {
            let mut newest_first = self.gaps.iter().rev();
            let (number, _) = newest_first.find(|(_, gap)| now >= gap.noticed + age)?;
            Some(*number)
        });
        if let (Some(last), Some(first), false) =
            (hidden_to, self.true_acks.first(), self.plan.knowing)
        {
            self.shown.insert(first.min(last), last);
        }
        let (sent, shown, knowing) = (&self.sent, &mut self.shown, self.plan.knowing);
        let mut lied = false;
        self.gaps.retain(|number, gap| {
            let hidden = hidden_to.is_some_and(|last| *number <= last);
            let due = hidden || gap.late.is_some_and(|at| at <= now);
            if due && (!knowing || sent.covers(*number, *number)) {
                shown.insert(*number, *number);
                lied = true;
            }
            !due
        });
        self.lied |= lied;
    }

    /// The packet with other ACK frames; empty if it held nothing else and is not to go.
    fn rewrite_packet(&mut self, now: Time, packet: &OneRtt<'_>, room: usize) -> Vec<u8> {
        let mut others = Vec::new();
        let mut ack: Option<(u64, Option<EcnCounts>)> = None;
        let mut reader = Reader::new(packet.payload);
        while !reader.is_empty() {
            let from = reader.position();
            match Frame::parse(&mut reader) {
                Ok(Frame::Ack(frame)) => ack = Some((frame.delay, frame.ecn)),
                Ok(_) => others.extend_from_slice(&packet.payload[from..reader.position()]),
                Err(_) => {
                    ack = None;
                    break;
                }
            }
        }
        let Some((delay, ecn)) = ack else {
            return packet.bytes.to_vec();
        };
        let wait = self.plan.stretch.unwrap_or_default();
        let mut payload = Vec::new();
        if self.last_ack.is_none_or(|at| now >= at + wait) {
            self.last_ack = Some(now);
            self.claim(now);
            let taken = packet.head.len() + others.len() + NULL_TAG.len();
            payload = self.acks(room.saturating_sub(taken), delay, ecn);
            if payload.is_empty() {
                // No room but for what the host had to say.
                return packet.bytes.to_vec();
            }
        }
        payload.extend_from_slice(&others);
        if payload.is_empty() {
            return payload;
        }
        payload.resize(payload.len().max(LEAST_SEALED), 0);
        [packet.head, &payload, &NULL_TAG].concat()
    }

    /// The ACK frames of one packet, at most `room` bytes.
    fn acks(&self, room: usize, delay: u64, ecn: Option<EcnCounts>) -> Vec<u8> {
        let mut bytes = vec![0; room];
        let mut w = Writer::new(&mut bytes);
        match self.plan.split {
            None => {
                write_ack(&mut w, delay, self.shown.descending(), ecn);
            }
            Some(split) => {
                let ranges = self.shown.descending();
                let pieces = ranges.flat_map(|range| {
                    let (first, last) = range.into_inner();
                    let count = if split.by_packet { last - first + 1 } else { 1 };
                    let width = (last - first + 1) / count;
                    (0..count).map(move |n| (last + 1 - (n + 1) * width, last - n * width))
                });
                let most = match split.ascending {
                    // The largest comes last and must have room.
                    true => room / SMALL_ACK,
                    false => room,
                };
                let mut pieces: Vec<(u64, u64)> = pieces.take(most).collect();
                if split.ascending {
                    pieces.reverse();
                }
                let largest = self.shown.last();
                for (first, last) in pieces {
                    // Only an ACK that raises the largest number may bring counts, and one that
                    // comes after others of the same packet brings too few.
                    let ecn = ecn.filter(|_| Some(last) == largest && !split.ascending);
                    if write_ack(&mut w, delay, [first..=last], ecn) == 0 {
                        break;
                    }
                }
            }
        }
        let len = w.len();
        bytes.truncate(len);
        bytes
    }
}

/// A 1-RTT packet in plaintext.
struct OneRtt<'a> {
    bytes: &'a [u8],
    /// Header and packet number.
    head: &'a [u8],
    pn_len: usize,
    payload: &'a [u8],
}

impl OneRtt<'_> {
    fn truncated(&self) -> u64 {
        let number = &self.head[self.head.len() - self.pn_len..];
        number.iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }
}

fn each_one_rtt<'a>(datagram: &'a [u8], mut visit: impl FnMut(OneRtt<'a>)) {
    let visited = for_each_packet(datagram, |header, bytes| {
        let Header::Short {
            first, pn_offset, ..
        } = header
        else {
            return Ok(());
        };
        let pn_len = usize::from(*first & 0x03) + 1;
        let payload_at = *pn_offset + pn_len;
        // A stateless reset only looks like a packet.
        if let Some(sealed) = bytes.strip_suffix(NULL_TAG.as_slice())
            && let Some((head, payload)) = sealed.split_at_checked(payload_at)
        {
            visit(OneRtt {
                bytes,
                head,
                pn_len,
                payload,
            });
        }
        Ok::<(), std::convert::Infallible>(())
    });
    visited.unwrap_or_default();
}

fn each_ack(payload: &[u8], mut visit: impl FnMut(&AckFrame<'_>)) {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        match Frame::parse(&mut reader) {
            Ok(Frame::Ack(ack)) => visit(&ack),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests;
