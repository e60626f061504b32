//! ACK frames (RFC 9000 §19.3): the validated view, its ranges, and the writer.
//!
//! A parsed `AckFrame` has been walked once, so iterating it can't underflow and costs no
//! allocation. Converting the delay and acting on the ranges is `recovery`'s business.

use core::fmt;
use core::ops::RangeInclusive;

use super::error::Malformed;
use super::kind::FrameType;
use crate::cursor::{MAX_VARINT, Reader, Writer, varint_len};

/// The most ranges one ACK frame is written with; a count above 63 would need a second byte.
pub const MAX_ACK_RANGES_WRITTEN: usize = 64;

/// Room in which [`write_ack`] always finds place for one range, in bytes.
pub const ACK_MIN_ROOM: usize = 1 + 8 + 8 + 1 + 8 + 3 * 8;

/// Counts of packets received with each ECN mark (RFC 9000 §19.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EcnCounts {
    /// Packets with ECT(0).
    pub ect0: u64,
    /// Packets with ECT(1).
    pub ect1: u64,
    /// Packets with ECN-CE.
    pub ce: u64,
}

impl EcnCounts {
    #[inline]
    const fn encoded_len(self) -> usize {
        varint_len(self.ect0) + varint_len(self.ect1) + varint_len(self.ce)
    }

    #[inline]
    fn write(self, w: &mut Writer<'_>) {
        w.varint(self.ect0);
        w.varint(self.ect1);
        w.varint(self.ce);
    }
}

/// An ACK frame whose ranges are known to be sound: descending, apart, none below 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AckFrame<'a> {
    /// The largest packet number acknowledged.
    pub largest: u64,
    /// The ACK Delay field, not yet scaled by the peer's `ack_delay_exponent`.
    pub delay: u64,
    /// ECN counts, if the frame has them.
    pub ecn: Option<EcnCounts>,
    first_range: u64,
    more: &'a [u8],
    more_count: u64,
}

impl<'a> AckFrame<'a> {
    /// The packet numbers acknowledged, highest range first.
    #[inline]
    pub fn ranges(&self) -> AckRanges<'a> {
        AckRanges {
            next: Some((self.largest - self.first_range, self.largest)),
            more: Reader::new(self.more),
        }
    }

    /// How many ranges there are, at least 1.
    #[inline]
    pub fn range_count(&self) -> u64 {
        self.more_count + 1
    }

    /// No range may go below 0 (RFC 9000 §19.3.1).
    #[inline]
    pub(super) fn parse_body(r: &mut Reader<'a>, has_ecn: bool) -> Result<Self, Malformed> {
        const UNDERFLOW: Malformed = Malformed("range below packet number 0");
        let largest = r.varint()?;
        let delay = r.varint()?;
        let more_count = r.varint()?;
        let first_range = r.varint()?;
        let mut smallest = largest.checked_sub(first_range).ok_or(UNDERFLOW)?;
        let start = r.as_slice();
        // The count is the peer's, but each turn reads at least two bytes of the packet.
        for _ in 0..more_count {
            let gap = r.varint()?;
            let len = r.varint()?;
            smallest = smallest.checked_sub(gap + 2 + len).ok_or(UNDERFLOW)?;
        }
        let more = &start[..start.len() - r.remaining()];
        let ecn = match has_ecn {
            true => Some(EcnCounts {
                ect0: r.varint()?,
                ect1: r.varint()?,
                ce: r.varint()?,
            }),
            false => None,
        };
        Ok(Self {
            largest,
            delay,
            ecn,
            first_range,
            more,
            more_count,
        })
    }

    pub(super) fn encoded_len(&self) -> usize {
        1 + varint_len(self.largest)
            + varint_len(self.delay)
            + varint_len(self.more_count)
            + varint_len(self.first_range)
            + self.more.len()
            + self.ecn.map_or(0, EcnCounts::encoded_len)
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        write_start(w, self.largest, self.delay, self.ecn);
        w.varint(self.more_count);
        w.varint(self.first_range);
        w.bytes(self.more);
        if let Some(ecn) = self.ecn {
            ecn.write(w);
        }
    }
}

impl fmt::Debug for AckFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckFrame")
            .field("largest", &self.largest)
            .field("delay", &self.delay)
            .field("ecn", &self.ecn)
            .field("ranges", &self.ranges().collect::<Vec<_>>())
            .finish()
    }
}

/// The ranges of an [`AckFrame`], highest first.
#[derive(Clone, Debug)]
pub struct AckRanges<'a> {
    next: Option<(u64, u64)>,
    more: Reader<'a>,
}

impl Iterator for AckRanges<'_> {
    type Item = RangeInclusive<u64>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (smallest, largest) = self.next.take()?;
        self.next = following(smallest, &mut self.more);
        Some(smallest..=largest)
    }
}

/// The range below `smallest`: checked once more, because a `None` costs less than a proof.
#[inline]
fn following(smallest: u64, more: &mut Reader<'_>) -> Option<(u64, u64)> {
    if more.is_empty() {
        return None;
    }
    let gap = more.varint().ok()?;
    let len = more.varint().ok()?;
    let largest = smallest.checked_sub(gap + 2)?;
    Some((largest.checked_sub(len)?, largest))
}

/// Writes an ACK frame with as many of `ranges` as fit, and returns how many that were; 0 means
/// nothing was written.
///
/// `ranges` come highest first, with at least one packet number between two of them; writing
/// stops before a range that breaks this, and after [`MAX_ACK_RANGES_WRITTEN`]. `ack_delay_raw`
/// is already divided by 2^`ack_delay_exponent`.
#[inline]
pub fn write_ack(
    w: &mut Writer<'_>,
    ack_delay_raw: u64,
    ranges: impl IntoIterator<Item = RangeInclusive<u64>>,
    ecn: Option<EcnCounts>,
) -> usize {
    let mut ranges = ranges.into_iter();
    let Some((mut smallest, largest)) = ranges.next().map(RangeInclusive::into_inner) else {
        return 0;
    };
    let Some(first_range) = largest.checked_sub(smallest) else {
        return 0;
    };
    let delay = ack_delay_raw.min(MAX_VARINT);
    let fixed = 2
        + varint_len(largest)
        + varint_len(delay)
        + varint_len(first_range)
        + ecn.map_or(0, EcnCounts::encoded_len);
    let Some(mut room) = w.remaining().checked_sub(fixed) else {
        return 0;
    };
    write_start(w, largest, delay, ecn);
    let count_at = w.len();
    w.u8(0);
    w.varint(first_range);
    let mut more = 0;
    for range in ranges.take(MAX_ACK_RANGES_WRITTEN - 1) {
        let (start, end) = range.into_inner();
        // The Gap field counts the missing numbers between two ranges, minus one.
        let gap = smallest
            .checked_sub(end)
            .and_then(|distance| distance.checked_sub(2));
        let (Some(gap), Some(len)) = (gap, end.checked_sub(start)) else {
            debug_assert!(false, "ranges must descend and be apart");
            break;
        };
        let Some(left) = room.checked_sub(varint_len(gap) + varint_len(len)) else {
            break;
        };
        room = left;
        w.varint(gap);
        w.varint(len);
        smallest = start;
        more += 1;
    }
    if let Some(count) = w.written_mut().get_mut(count_at) {
        *count = more;
    }
    if let Some(ecn) = ecn {
        ecn.write(w);
    }
    1 + usize::from(more)
}

#[inline]
fn write_start(w: &mut Writer<'_>, largest: u64, delay: u64, ecn: Option<EcnCounts>) {
    let ty = if ecn.is_some() {
        FrameType::ACK_ECN
    } else {
        FrameType::ACK
    };
    w.u8(ty.as_u64() as u8);
    w.varint(largest);
    w.varint(delay);
}
