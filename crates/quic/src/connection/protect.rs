//! Packet protection: keys of every space, header protection, AEAD, key updates and limits
//! (RFC 9001 §5, §6).
//!
//! Opens and seals in place. It knows packet bytes and numbers, never frames. A failed open
//! is counted against the integrity limit and otherwise silent.

use std::time::Duration;

use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys, PacketKey, PacketKeySet, Secrets};
use towline_wire::{
    PacketNumberSpace, Side, Time, TransportErrorCode, decode_packet_number,
    truncated_packet_number,
};

use crate::error::Violation;

/// Bytes an AEAD adds to a packet; the same for all TLS 1.3 suites.
pub(crate) const TAG_LEN: usize = 16;

/// Length of the header-protection sample (RFC 9001 §5.4.2).
const SAMPLE_LEN: usize = 16;

/// Bits of a short header's first byte that are zero behind header protection (RFC 9000 §17.3.1).
const RESERVED_SHORT: u8 = 0x18;

/// Packets below the AEAD's confidentiality limit that are kept for a CONNECTION_CLOSE.
const RESERVED_SEALS: u64 = 64;

/// An opened packet: where its payload lies in the bytes handed in.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) packet_number: u64,
    pub(crate) payload: std::ops::Range<usize>,
}

#[derive(Debug)]
pub(crate) enum OpenError {
    /// There are no keys for this space yet.
    NoKeys,
    /// Too short, not authentic, or for keys long gone: drop it silently.
    Dropped,
    /// The peer broke a rule that only an authentic packet can break.
    Violation(Violation),
    /// Too many forged packets (RFC 9001 §6.6).
    IntegrityLimit,
}

struct Previous {
    key: Box<dyn PacketKey>,
    /// First packet number opened with the keys that followed.
    end: Option<u64>,
    /// Highest packet number opened with this key since the update.
    highest: Option<u64>,
}

struct OneRtt {
    header_local: Box<dyn HeaderProtectionKey>,
    header_remote: Box<dyn HeaderProtectionKey>,
    local: Box<dyn PacketKey>,
    remote: Box<dyn PacketKey>,
    /// Opens the first packet of the next phase; there before the bit of any packet is looked at, so
    /// that the time it takes tells nothing about it (RFC 9001 §6.3, §9.5). A quiet connection has
    /// none and makes it for the packet that ends the quiet, whatever that packet's bit is.
    next_remote: Option<Box<dyn PacketKey>>,
    previous: Option<Previous>,
    /// Those of the next phase.
    secrets: Secrets,
    phase: bool,
    /// Packets sealed with the current key.
    sealed: u64,
    /// Most packets one key may seal, and most forgeries it may see (RFC 9001 §6.6).
    confidentiality_limit: u64,
    integrity_limit: u64,
    /// First packet number sent in this phase.
    first_sent: Option<u64>,
    /// The peer has acknowledged a packet of this phase, so another update is allowed.
    phase_acked: bool,
    updates: u64,
}

/// All keys of a connection.
pub(crate) struct Protection {
    side: Side,
    initial: Option<Box<Keys>>,
    handshake: Option<Box<Keys>>,
    one_rtt: Option<Box<OneRtt>>,
    failed_opens: u64,
}

impl Protection {
    pub(crate) fn new(side: Side, initial: Keys) -> Self {
        Self {
            side,
            initial: Some(Box::new(initial)),
            handshake: None,
            one_rtt: None,
            failed_opens: 0,
        }
    }

    pub(crate) fn install_initial(&mut self, keys: Keys) {
        self.initial = Some(Box::new(keys));
    }

    pub(crate) fn install_handshake(&mut self, keys: Keys) {
        self.handshake = Some(Box::new(keys));
    }

    pub(crate) fn install_one_rtt(&mut self, keys: Keys, secrets: Secrets) {
        self.one_rtt = Some(Box::new(OneRtt {
            confidentiality_limit: keys.local.packet.confidentiality_limit(),
            integrity_limit: keys.remote.packet.integrity_limit(),
            header_local: keys.local.header,
            header_remote: keys.remote.header,
            local: keys.local.packet,
            remote: keys.remote.packet,
            next_remote: None,
            previous: None,
            secrets,
            phase: false,
            sealed: 0,
            first_sent: None,
            phase_acked: false,
            updates: 0,
        }));
    }

    pub(crate) fn has_keys(&self, space: PacketNumberSpace) -> bool {
        match space {
            PacketNumberSpace::Initial => self.initial.is_some(),
            PacketNumberSpace::Handshake => self.handshake.is_some(),
            PacketNumberSpace::Application => self.one_rtt.is_some(),
        }
    }

    /// Drops the keys of a space for good (RFC 9001 §4.9); `false` if there were none.
    pub(crate) fn discard(&mut self, space: PacketNumberSpace) -> bool {
        match space {
            PacketNumberSpace::Initial => self.initial.take().is_some(),
            PacketNumberSpace::Handshake => self.handshake.take().is_some(),
            PacketNumberSpace::Application => self.one_rtt.take().is_some(),
        }
    }

    fn long(&self, space: PacketNumberSpace) -> Option<&Keys> {
        match space {
            PacketNumberSpace::Initial => self.initial.as_deref(),
            PacketNumberSpace::Handshake => self.handshake.as_deref(),
            PacketNumberSpace::Application => None,
        }
    }

    // ---- opening ----

    /// Removes header protection and opens `packet` in place.
    ///
    /// `packet` starts at the first byte of the packet and ends at its last.
    pub(crate) fn open(
        &mut self,
        space: PacketNumberSpace,
        packet: &mut [u8],
        pn_offset: usize,
        largest_received: Option<u64>,
    ) -> Result<Opened, OpenError> {
        let header_key: &dyn HeaderProtectionKey = match space {
            PacketNumberSpace::Application => match &self.one_rtt {
                Some(k) => &*k.header_remote,
                None => return Err(OpenError::NoKeys),
            },
            _ => match self.long(space) {
                Some(Keys {
                    remote: DirectionalKeys { header, .. },
                    ..
                }) => &**header,
                None => return Err(OpenError::NoKeys),
            },
        };
        let sample_at = pn_offset + 4;
        if packet.len() < sample_at + SAMPLE_LEN {
            return Err(OpenError::Dropped);
        }
        let (head, sample) = packet.split_at_mut(sample_at);
        let (first, pn_bytes) = match head.split_first_mut() {
            Some((first, rest)) => (first, &mut rest[pn_offset - 1..]),
            None => return Err(OpenError::Dropped),
        };
        if header_key
            .decrypt_in_place(&sample[..SAMPLE_LEN], first, pn_bytes)
            .is_err()
        {
            return Err(OpenError::Dropped);
        }
        let first = *first;
        let pn_len = usize::from(first & 0x03) + 1;
        let truncated = pn_bytes[..pn_len]
            .iter()
            .fold(0u64, |v, &b| v << 8 | u64::from(b));
        let packet_number = decode_packet_number(truncated, pn_len, largest_received);
        let payload_at = pn_offset + pn_len;
        let (header, payload) = packet.split_at_mut(payload_at);
        let len = match space {
            PacketNumberSpace::Application => {
                self.open_one_rtt(first, packet_number, header, payload)?
            }
            _ => {
                let keys = self.long(space).ok_or(OpenError::NoKeys)?;
                let key = &*keys.remote.packet;
                match key.decrypt_in_place(packet_number, header, payload) {
                    Ok(plain) => plain.len(),
                    Err(_) => return Err(self.on_failed_open(space)),
                }
            }
        };
        let reserved = if space == PacketNumberSpace::Application {
            RESERVED_SHORT
        } else {
            0x0c
        };
        if first & reserved != 0 {
            return Err(OpenError::Violation(Violation::protocol(
                "reserved header bits are not zero",
            )));
        }
        Ok(Opened {
            packet_number,
            payload: payload_at..payload_at + len,
        })
    }

    /// What neither the current nor the next key opens changes nothing (RFC 9001 §5.5).
    fn open_one_rtt(
        &mut self,
        first: u8,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<usize, OpenError> {
        let Some(k) = self.one_rtt.as_deref_mut() else {
            return Err(OpenError::NoKeys);
        };
        let next = k.next_remote.get_or_insert_with(|| next_remote(&k.secrets));
        let phase = first & 0x04 != 0;
        enum Which {
            Current,
            Previous,
            Next,
        }
        let (which, key) = if phase == k.phase {
            (Which::Current, &*k.remote)
        } else {
            match &k.previous {
                // Reordered from before the last update, or the peer has not followed ours yet.
                Some(p) if p.end.is_none_or(|end| packet_number < end) => {
                    (Which::Previous, &*p.key)
                }
                _ => (Which::Next, &**next),
            }
        };
        let Ok(plain) = key.decrypt_in_place(packet_number, header, payload) else {
            return Err(self.on_failed_open(PacketNumberSpace::Application));
        };
        let len = plain.len();
        match which {
            Which::Previous => {
                if let Some(p) = &mut k.previous {
                    p.highest = p.highest.max(Some(packet_number));
                }
                Ok(len)
            }
            Which::Current => {
                if let Some(p) = &mut k.previous
                    && p.end.is_none_or(|end| packet_number < end)
                {
                    // RFC 9001 §6.4: higher packet numbers have the same or newer keys.
                    if p.highest.is_some_and(|old| old > packet_number) {
                        return Err(OpenError::Violation(Violation::new(
                            TransportErrorCode::KEY_UPDATE_ERROR,
                            "old keys were used after newer ones",
                        )));
                    }
                    p.end = Some(packet_number);
                }
                Ok(len)
            }
            Which::Next => {
                // RFC 9001 §6.2: the peer updates again only once it has our acknowledgement
                // under the keys of its last update, so we have sent something with them. And
                // §6.1: a client updates only once it knows the handshake to be confirmed, of
                // which a first 1-RTT packet told it. A server knows before it tells anybody.
                let first = k.updates == 0;
                if k.first_sent.is_none() && !(first && self.side.is_client()) {
                    return Err(OpenError::Violation(Violation::new(
                        TransportErrorCode::KEY_UPDATE_ERROR,
                        if first {
                            "key update before the handshake was confirmed"
                        } else {
                            "key update before the previous one was acknowledged"
                        },
                    )));
                }
                k.rotate(Some(packet_number));
                Ok(len)
            }
        }
    }

    fn on_failed_open(&mut self, space: PacketNumberSpace) -> OpenError {
        self.failed_opens += 1;
        let limit = match (space, &self.one_rtt) {
            (PacketNumberSpace::Application, Some(k)) => k.integrity_limit,
            _ => u64::MAX,
        };
        if self.failed_opens >= limit {
            OpenError::IntegrityLimit
        } else {
            OpenError::Dropped
        }
    }

    /// Packets that failed authentication since the start.
    pub(crate) fn failed_opens(&self) -> u64 {
        self.failed_opens
    }

    // ---- sealing ----

    /// Seals `packet` in place; its last [`TAG_LEN`] bytes are room for the tag.
    ///
    /// Fails only if keys are missing or the AEAD refuses, which callers treat as fatal.
    pub(crate) fn seal(
        &mut self,
        space: PacketNumberSpace,
        packet_number: u64,
        packet: &mut [u8],
        pn_offset: usize,
        pn_len: usize,
    ) -> Result<(), &'static str> {
        let (header_key, packet_key): (&dyn HeaderProtectionKey, &dyn PacketKey) = match space {
            PacketNumberSpace::Application => match self.one_rtt.as_deref_mut() {
                Some(k) => {
                    k.sealed += 1;
                    k.first_sent.get_or_insert(packet_number);
                    (&*k.header_local, &*k.local)
                }
                None => return Err("sealing without 1-RTT keys"),
            },
            _ => match self.long(space) {
                Some(k) => (&*k.local.header, &*k.local.packet),
                None => return Err("sealing without keys"),
            },
        };
        let payload_at = pn_offset + pn_len;
        let (header, rest) = packet.split_at_mut(payload_at);
        let body_len = rest
            .len()
            .checked_sub(TAG_LEN)
            .ok_or("no room for the AEAD tag")?;
        let (body, tag_room) = rest.split_at_mut(body_len);
        let tag = packet_key
            .encrypt_in_place(packet_number, header, body)
            .map_err(|_| "the AEAD refused to seal")?;
        tag_room.copy_from_slice(tag.as_ref());
        let (head, sample) = packet.split_at_mut(pn_offset + 4);
        let (first, pn_bytes) = head.split_first_mut().ok_or("empty packet")?;
        header_key
            .encrypt_in_place(
                &sample[..SAMPLE_LEN],
                first,
                &mut pn_bytes[pn_offset - 1..pn_offset - 1 + pn_len],
            )
            .map_err(|_| "header protection failed")
    }

    /// The number of a 1-RTT packet that was sealed here, by its first bytes; `next` was not sent yet.
    /// `None` if there are too few of them, or they are no packet's. Of bytes that were never
    /// sealed a number comes out by chance.
    pub(crate) fn number_of_sealed(
        &self,
        packet: &[u8],
        pn_offset: usize,
        next: u64,
    ) -> Option<u64> {
        let key = &self.one_rtt.as_ref()?.header_local;
        let mut first = *packet.first()?;
        let mut number: [u8; 4] = *packet.get(pn_offset..)?.first_chunk()?;
        let sample = packet.get(pn_offset + 4..)?.first_chunk::<SAMPLE_LEN>()?;
        key.decrypt_in_place(sample, &mut first, &mut number).ok()?;
        if first & RESERVED_SHORT != 0 {
            return None;
        }
        let len = usize::from(first & 0x03) + 1;
        let truncated = truncated_packet_number(&number[..len]);
        // The newest that ends in these bytes.
        let last = next.checked_sub(1)?;
        last.checked_sub(last.wrapping_sub(truncated) & ((1 << (8 * len)) - 1))
    }

    /// The key phase bit of 1-RTT packets to be sealed.
    pub(crate) fn phase(&self) -> bool {
        self.one_rtt.as_ref().is_some_and(|k| k.phase)
    }

    // ---- key update ----

    /// An acknowledgement covers 1-RTT packet `packet_number`.
    pub(crate) fn on_acked(&mut self, packet_number: u64) {
        if let Some(k) = &mut self.one_rtt
            && k.first_sent.is_some_and(|first| packet_number >= first)
        {
            k.phase_acked = true;
        }
    }

    /// Moves to the next keys if the rules permit it now (RFC 9001 §6.1); the caller has
    /// checked that the handshake is confirmed.
    pub(crate) fn initiate_update(&mut self) -> bool {
        match self.one_rtt.as_deref_mut() {
            Some(k) if k.phase_acked && k.previous.is_none() => {
                k.rotate(None);
                true
            }
            _ => false,
        }
    }

    /// Whether as many packets were sealed as `interval`, or the AEAD's limit is near.
    /// Long before the AEAD's limit (RFC 9001 §5.3).
    pub(crate) fn wants_update(&self, interval: u64) -> bool {
        self.one_rtt
            .as_ref()
            .is_some_and(|k| k.sealed >= interval.min(k.confidentiality_limit / 2) && k.phase_acked)
    }

    /// No further packet may be sealed but CONNECTION_CLOSE (RFC 9001 §6.6).
    pub(crate) fn confidentiality_exhausted(&self) -> bool {
        self.one_rtt
            .as_ref()
            .is_some_and(|k| k.sealed + RESERVED_SEALS >= k.confidentiality_limit)
    }

    /// Drops the keys from before the last update.
    pub(crate) fn discard_previous(&mut self) {
        if let Some(k) = &mut self.one_rtt
            && k.previous.as_ref().is_some_and(|p| p.end.is_some())
        {
            k.previous = None;
        }
    }

    /// Keys from before an update are kept and the peer has followed it.
    pub(crate) fn previous_may_go(&self) -> bool {
        self.one_rtt
            .as_ref()
            .and_then(|k| k.previous.as_ref())
            .is_some_and(|p| p.end.is_some())
    }

    /// Gives back what a quiet connection does not need.
    pub(crate) fn trim(&mut self) {
        if let Some(k) = self.one_rtt.as_deref_mut() {
            k.next_remote = None;
        }
    }

    /// Key updates so far, by either side.
    pub(crate) fn updates(&self) -> u64 {
        self.one_rtt.as_ref().map_or(0, |k| k.updates)
    }
}

/// The key that opens packets of the phase that `secrets` are for.
fn next_remote(secrets: &Secrets) -> Box<dyn PacketKey> {
    secrets.clone().next_packet_keys().remote
}

impl OneRtt {
    fn rotate(&mut self, first_received: Option<u64>) {
        // The sending key is made when it is needed: kept ready, it would be 650 idle bytes.
        let PacketKeySet { local, remote } = self.secrets.next_packet_keys();
        self.next_remote = Some(next_remote(&self.secrets));
        let old = std::mem::replace(&mut self.remote, remote);
        self.local = local;
        self.previous = Some(Previous {
            key: old,
            end: first_received,
            highest: None,
        });
        self.phase = !self.phase;
        self.sealed = 0;
        self.first_sent = None;
        self.phase_acked = false;
        self.updates += 1;
    }
}

/// How long keys from before an update are kept (RFC 9001 §6.5).
pub(crate) fn previous_key_lifetime(pto: Duration) -> Duration {
    pto * 3
}

/// The deadline for dropping previous keys.
pub(crate) fn previous_key_deadline(now: Time, pto: Duration) -> Time {
    now + previous_key_lifetime(pto)
}
