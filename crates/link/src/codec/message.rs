//! The head of a coded batch: its number, what it refers to, and a checksum.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | form: bits 0–1 the length of the number minus 1, bits 2–3 that of the distance minus 1, bit 4 the coding |
//! | 1–4 | the batch's number, its low bytes, big-endian |
//! | 1–4 | the distance to the newest batch that the coder knew, big-endian |
//! | 2 | the checksum: of the records, and of every batch up to that one |

use super::Corrupt;

/// How the records of a batch are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// By the model.
    Model,
    /// As JSON lines, compressed.
    Lines,
}

/// What stands before the coded records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    /// The batches before this one are what the coder knew.
    pub(super) base: u64,
    pub(super) coding: Coding,
    pub(super) check: u16,
}

const LENGTH_MASK: u8 = 0b11;
const DISTANCE_SHIFT: u32 = 2;
const LINES: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;
/// Bytes of a number: a batch is sent again under its number, or waits for its stream, while any count of others overtake
/// it. 65,536 numbers are 13 times what may be on its way.
const NUMBER_LEN: u8 = 2;

impl Head {
    /// Appends it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let distance = self.number - self.base;
        let distance_len = length(distance);
        let coding = match self.coding {
            Coding::Model => 0,
            Coding::Lines => LINES,
        };
        out.push((NUMBER_LEN - 1) | (distance_len - 1) << DISTANCE_SHIFT | coding);
        put(self.number, NUMBER_LEN, out);
        put(distance, distance_len, out);
        out.extend_from_slice(&self.check.to_be_bytes());
    }

    /// Takes it off the front of `bytes`; `expected` is the number after the largest one seen.
    pub(super) fn read(bytes: &mut &[u8], expected: u64) -> Result<Self, Corrupt> {
        let form = take(bytes, 1)? as u8;
        if form & RESERVED != 0 {
            return Err(Corrupt::Form);
        }
        let number_len = (form & LENGTH_MASK) + 1;
        let low = take(bytes, number_len)?;
        let distance = take(bytes, (form >> DISTANCE_SHIFT & LENGTH_MASK) + 1)?;
        let check = take(bytes, 2)? as u16;
        let number = nearest(expected, low, number_len);
        let base = number.checked_sub(distance).ok_or(Corrupt::Form)?;
        let coding = match form & LINES {
            0 => Coding::Model,
            _ => Coding::Lines,
        };
        Ok(Self {
            number,
            base,
            coding,
            check,
        })
    }
}

/// The bytes that a number needs, 1 to 4.
fn length(number: u64) -> u8 {
    let bits = u64::BITS - number.leading_zeros();
    bits.div_ceil(8).clamp(1, 4) as u8
}

fn put(number: u64, len: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_be_bytes()[8 - usize::from(len)..]);
}

fn take(bytes: &mut &[u8], len: u8) -> Result<u64, Corrupt> {
    let (taken, rest) = bytes
        .split_at_checked(usize::from(len))
        .ok_or(Corrupt::Short)?;
    *bytes = rest;
    Ok(taken
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// The number with these low bytes that is nearest to the one expected (RFC 9000 §A.3).
fn nearest(expected: u64, low: u64, len: u8) -> u64 {
    let window = 1u64 << (8 * u32::from(len));
    let number = expected & !(window - 1) | low;
    if number + window / 2 <= expected {
        number + window
    } else if number > expected + window / 2 && number >= window {
        number - window
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for number in [0u64, 1, 127, 128, 255, 256, 70_000, 1 << 40] {
            for behind in [0u64, 1, 3, 60, 127, 4999] {
                let heard = number.saturating_sub(behind);
                let head = Head {
                    number,
                    base: heard,
                    coding: Coding::Model,
                    check: 0xbeef,
                };
                let mut out = Vec::new();
                head.write(&mut out);
                // Whatever of those on their way has come, and of many that were sent after this one.
                for expected in [heard, number, number + 1, number + 30_000] {
                    let mut bytes = &out[..];
                    assert_eq!(Head::read(&mut bytes, expected), Ok(head));
                    assert!(bytes.is_empty());
                }
            }
        }
    }

    #[test]
    fn a_head_that_makes_no_sense_is_refused() {
        assert_eq!(Head::read(&mut &[][..], 0), Err(Corrupt::Short));
        assert_eq!(Head::read(&mut &[0, 5, 9, 0, 0][..], 5), Err(Corrupt::Form));
        assert_eq!(
            Head::read(&mut &[0x20, 0, 0, 0, 0][..], 0),
            Err(Corrupt::Form)
        );
        assert_eq!(Head::read(&mut &[0, 0, 0, 0][..], 0), Err(Corrupt::Short));
    }
}
