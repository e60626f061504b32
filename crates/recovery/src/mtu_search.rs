//! The search for the largest datagram a path carries (DPLPMTUD: RFC 8899, RFC 9000 §14.3).
//!
//! Owns the size in use and what is known of larger ones. `Recovery` asks whether a probe is due,
//! tells what became of it, and which sizes were acknowledged and lost. It has no timer: whatever is
//! due waits for data, because a larger packet is of no use without. It never builds a packet.

use core::time::Duration;

use towline_wire::Time;

/// Every path of QUIC carries so much (RFC 9000 §14).
const LEAST: u16 = 1200;

/// Tries of one size before it counts as too large (RFC 8899 §5.1.2, MAX_PROBES).
const MAX_PROBES: u8 = 3;

/// A path that carries less than it might is asked again after this (RFC 8899 §5.1.1,
/// PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// After a black hole the path has this long to settle.
const BLACK_HOLE_PAUSE: Duration = Duration::from_secs(60);

/// The search ends where less than so many bytes are to be gained.
const GRANULARITY: u16 = 20;

/// Full-sized datagrams sent before the search begins, as many as slow start sends in two round trips:
/// who sends less gains nothing by larger ones, and would wait for what a probe takes of the window.
const WORTHWHILE: u8 = 30;

/// ACKs in a row of smaller datagrams alone, each after larger ones were lost, and datagrams lost in
/// all, that a black hole explains better than congestion does: where one in five is lost by chance, so
/// many in a row are once in 400,000.
const BLACK_HOLE_ACKS: u8 = 3;
const BLACK_HOLE_DATAGRAMS: u16 = 8;

/// UDP payloads of common links over IPv4 and IPv6: an MTU of 1280, tunnels of 1400 to 1440, 1480,
/// PPPoE's 1492, Ethernet's 1500, and 9000.
const PLATEAUS: [u16; 15] = [
    1232, 1252, 1280, 1352, 1372, 1392, 1400, 1412, 1432, 1444, 1452, 1464, 1472, 8952, 8972,
];

/// Sizes of datagrams, in bytes of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSizes {
    /// What a path begins with; at least `min`.
    pub initial: u16,
    /// What every path is believed to carry: at least 1200 (RFC 9000 §14).
    pub min: u16,
    /// The most that is tried.
    pub max: u16,
    /// Whether larger ones than `initial` are tried, and `min` when those in use get nowhere.
    pub search: bool,
}

impl DatagramSizes {
    /// Always the same.
    pub const fn fixed(size: u16) -> Self {
        Self {
            initial: size,
            min: size,
            max: size,
            search: false,
        }
    }

    /// None of them larger than `most`.
    pub(crate) fn limited(self, most: u16) -> Self {
        Self {
            initial: self.initial.min(most),
            min: self.min.min(most),
            max: self.max.min(most),
            search: self.search,
        }
    }
}

/// What came of a router's notice that a packet was too big.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooBig {
    /// Nothing: it contradicts what is known, or says nothing new.
    NotBelieved,
    /// Nothing larger is tried than what it said. The size in use stays.
    Noted,
    /// The size in use fell: what is in flight gets nowhere.
    SizeFell,
}

/// The search of one path.
#[derive(Clone, Debug)]
pub(crate) struct MtuSearch {
    sizes: DatagramSizes,
    /// The size in use.
    size: u16,
    /// Nothing larger passes, as far as is known.
    high: u16,
    /// `high` itself was not tried yet, and may well be the path's size.
    try_high: bool,
    /// Probes of the present candidate that were lost.
    tries: u8,
    /// Full-sized datagrams sent, as far as it matters.
    full_sized: u8,
    /// The probe whose fate is not known: its packet number and size.
    probe: Option<(u64, u16)>,
    /// No probes before.
    pause_until: Option<Time>,
    /// ACKs in a row that speak of a black hole.
    suspicions: u8,
    /// Datagrams lost that do, and the smallest of them.
    lost: u16,
    suspect: u16,
    /// Some of them were lost since the latest ACK.
    lost_since: bool,
    /// The largest acknowledged meanwhile.
    passed: u16,
}

impl MtuSearch {
    pub(crate) fn new(sizes: DatagramSizes) -> Self {
        Self {
            sizes,
            size: sizes.initial,
            high: sizes.max,
            try_high: true,
            tries: 0,
            full_sized: 0,
            probe: None,
            pause_until: None,
            suspicions: 0,
            lost: 0,
            suspect: u16::MAX,
            lost_since: false,
            passed: 0,
        }
    }

    /// The size in use.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// The size of packets that must arrive: what they are about may be that larger ones do not.
    pub(crate) fn safe_size(&self) -> u16 {
        match self.sizes.search {
            true => self.size.min(self.sizes.min),
            false => self.size,
        }
    }

    /// So many datagrams of the size in use were sent.
    #[inline]
    pub(crate) fn on_full_sized(&mut self, datagrams: usize) {
        if self.full_sized < WORTHWHILE {
            let datagrams = u8::try_from(datagrams).unwrap_or(u8::MAX);
            self.full_sized = self.full_sized.saturating_add(datagrams);
        }
    }

    /// The size of a probe that should leave now (RFC 9000 §14.2).
    #[inline]
    pub(crate) fn due(&mut self, now: Time) -> Option<u16> {
        if !self.sizes.search || self.full_sized < WORTHWHILE || self.probe.is_some() {
            return None;
        }
        if let Some(until) = self.pause_until {
            if now < until {
                return None;
            }
            self.begin_again(None);
        }
        self.candidate()
    }

    /// The whole range is open again, after a pause.
    fn begin_again(&mut self, pause_until: Option<Time>) {
        self.high = self.sizes.max;
        self.try_high = true;
        self.tries = 0;
        self.pause_until = pause_until;
    }

    /// The size to try next: first the largest, which most paths carry; then by halves, sizes of
    /// common links before others.
    fn candidate(&self) -> Option<u16> {
        let (low, high) = (self.size, self.high);
        if high.saturating_sub(low) < GRANULARITY {
            // The path's own size, told by the path, is worth a probe however near it is.
            return (self.try_high && high > low && high < self.sizes.max).then_some(high);
        }
        if self.try_high {
            return Some(high);
        }
        let first = PLATEAUS.partition_point(|size| *size <= low);
        let end = PLATEAUS.partition_point(|size| *size <= high);
        let common = PLATEAUS.get(first..end).unwrap_or_default();
        let middle = low + (high - low).div_ceil(2);
        Some(common.get(common.len() / 2).copied().unwrap_or(middle))
    }

    /// The probe that was due has left.
    pub(crate) fn on_probe_sent(&mut self, packet_number: u64, size: u16) {
        self.probe = Some((packet_number, size));
    }

    /// The packet number of the probe whose fate is not known.
    #[inline]
    pub(crate) fn probe(&self) -> Option<u64> {
        self.probe.map(|(packet_number, _)| packet_number)
    }

    /// The probe was acknowledged: its size is in use from now on.
    pub(crate) fn on_probe_acked(&mut self, now: Time) {
        let Some((_, size)) = self.probe.take() else {
            return;
        };
        // Whatever was heard meanwhile: this one passed. The peer's limit is not the path's.
        self.size = self.size.max(size.min(self.sizes.max));
        self.high = self.high.max(self.size);
        self.tries = 0;
        self.forget_suspicions();
        self.pause_if_done(now);
    }

    /// The probe was lost, which says nothing of congestion (RFC 9000 §14.4).
    pub(crate) fn on_probe_lost(&mut self, now: Time) {
        let Some((_, size)) = self.probe.take() else {
            return;
        };
        // Of a size that is ruled out meanwhile nothing was learnt.
        if size <= self.high && size > self.size {
            self.tries += 1;
            if self.tries >= MAX_PROBES {
                self.rule_out(size - 1);
            }
        }
        self.pause_if_done(now);
    }

    /// What was in flight is forgotten.
    pub(crate) fn on_abandoned(&mut self) {
        self.probe = None;
    }

    /// Nothing larger than `high` passes.
    fn rule_out(&mut self, high: u16) {
        self.high = high;
        self.try_high = false;
        self.tries = 0;
    }

    fn pause_if_done(&mut self, now: Time) {
        let may_rise = self.size < self.sizes.max;
        if may_rise && self.pause_until.is_none() && self.candidate().is_none() {
            self.pause_until = Some(now + RAISE_AFTER);
        }
    }

    /// One pass of loss detection found so many datagrams lost, probes apart, of which this is the
    /// smallest.
    pub(crate) fn on_lost(&mut self, datagrams: usize, smallest: u16) {
        let safe = self.sizes.min;
        if !self.sizes.search || self.size <= safe || smallest <= safe.max(self.passed) {
            return;
        }
        let datagrams = u16::try_from(datagrams).unwrap_or(u16::MAX);
        self.lost = self.lost.saturating_add(datagrams);
        self.suspect = self.suspect.min(smallest);
        self.lost_since = true;
    }

    /// An ACK acknowledged datagrams, this large at most, and what it showed to be lost was told. True
    /// if the path is a black hole for the size in use, which has fallen then.
    #[inline]
    pub(crate) fn on_acked(&mut self, now: Time, largest: u16) -> bool {
        if self.lost == 0 || largest == 0 {
            return false;
        }
        if largest >= self.suspect {
            self.forget_suspicions();
            return false;
        }
        self.passed = self.passed.max(largest);
        self.suspicions += u8::from(core::mem::take(&mut self.lost_since));
        if self.suspicions < BLACK_HOLE_ACKS || self.lost < BLACK_HOLE_DATAGRAMS {
            // Counted no further: it may take long until so many are lost.
            self.suspicions = self.suspicions.min(BLACK_HOLE_ACKS);
            return false;
        }
        self.fall();
        self.begin_again(Some(now + BLACK_HOLE_PAUSE));
        true
    }

    fn fall(&mut self) {
        self.size = self.size.min(self.sizes.min);
        self.forget_suspicions();
    }

    fn forget_suspicions(&mut self) {
        self.suspicions = 0;
        self.lost = 0;
        self.suspect = u16::MAX;
        self.lost_since = false;
        self.passed = 0;
    }

    /// Datagrams of `size` bytes do not leave this machine. True if the size in use has fallen; below
    /// 1200 bytes it never does (RFC 9000 §14.2.1).
    pub(crate) fn on_refused(&mut self, now: Time, size: u16) -> bool {
        if size <= LEAST {
            return false;
        }
        if size <= self.sizes.min {
            self.sizes.min = LEAST;
        }
        if size <= self.high {
            self.rule_out(size - 1);
            self.pause_until = None;
        }
        let falls = size <= self.size;
        if falls {
            self.fall();
        }
        self.pause_if_done(now);
        falls
    }

    /// A router says that a datagram of `size` bytes, which is in flight, is too big, and that `mtu`
    /// bytes pass (RFC 8899 §4.6). The size in use falls only as after a black hole, and what the
    /// router said is tried next: a larger size is never believed before a probe of it arrived.
    pub(crate) fn on_too_big(&mut self, now: Time, size: u16, mtu: u16) -> TooBig {
        // Less than every path is believed to carry is no path's size (RFC 9000 §14.2.1).
        let least = self.sizes.min.max(LEAST);
        let is_news = mtu >= least && mtu < size && mtu < self.high;
        if !self.sizes.search || !is_news {
            return TooBig::NotBelieved;
        }
        self.high = mtu;
        self.try_high = true;
        self.tries = 0;
        self.pause_until = None;
        let falls = mtu < self.size;
        if falls {
            self.fall();
        }
        self.pause_if_done(now);
        match falls {
            true => TooBig::SizeFell,
            false => TooBig::Noted,
        }
    }

    /// The peer takes no larger datagrams. True if the size in use has fallen.
    pub(crate) fn limit(&mut self, max: u16) -> bool {
        let falls = max < self.size;
        self.sizes = self.sizes.limited(max);
        self.high = self.high.min(max);
        self.size = self.size.min(max);
        falls
    }
}

#[cfg(test)]
mod tests;
