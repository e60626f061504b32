//! A binary arithmetic coder: bits with a probability become bytes, and bytes become the same bits.
//!
//! 32 bits of range, carries never happen (the two ends of the interval share their settled bytes). The
//! end is the shortest string of bytes inside the interval; a reader takes zeros past the end.

/// Zero bytes that a reader takes past the end; a writer leaves out half as many at most.
const MOST_PAST: usize = 64;

/// What one bit at a time goes through: a writer, a reader, or nothing.
pub(super) trait Coder {
    /// Codes a bit that is 1 with probability `one` / 65536, `one` from 1 to 65535. A reader takes no
    /// notice of `bit`, and says what was read.
    fn code(&mut self, bit: bool, one: u32) -> bool;

    /// Whether bits are found out rather than told.
    const READS: bool;
}

/// Writes.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    low: u32,
    high: u32,
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            low: 0,
            high: u32::MAX,
            out,
        }
    }

    /// Writes as few bytes as say where the interval is; `start` is where this writer's output began.
    pub(super) fn finish(self, start: usize) {
        // The number in the interval with the most zeros behind it.
        let mut zeros = 32;
        let value = loop {
            let mask = u32::MAX.checked_shl(zeros).unwrap_or(0);
            let value = self.high & mask;
            if value >= self.low {
                break value;
            }
            zeros -= 1;
        };
        self.out.extend_from_slice(&value.to_be_bytes());
        let least = start.max(self.out.len().saturating_sub(MOST_PAST / 2));
        while self.out.len() > least && self.out.last() == Some(&0) {
            self.out.pop();
        }
    }
}

/// Where the interval of a zero ends, a one's lying below.
fn split(low: u32, high: u32, one: u32) -> u32 {
    let range = u64::from(high - low);
    // Below `high`, as `one` is below 65536: neither part is empty.
    low + ((range * u64::from(one)) >> 16) as u32
}

impl Coder for Writer<'_> {
    const READS: bool = false;

    fn code(&mut self, bit: bool, one: u32) -> bool {
        let middle = split(self.low, self.high, one);
        match bit {
            true => self.high = middle,
            false => self.low = middle + 1,
        }
        while (self.low ^ self.high) >> 24 == 0 {
            self.out.push((self.high >> 24) as u8);
            self.low <<= 8;
            self.high = self.high << 8 | 0xff;
        }
        bit
    }
}

/// Reads.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    low: u32,
    high: u32,
    value: u32,
    rest: &'a [u8],
    /// Bytes taken past the end.
    past: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Self {
            low: 0,
            high: u32::MAX,
            value: 0,
            rest: bytes,
            past: 0,
        };
        for _ in 0..4 {
            reader.value = reader.value << 8 | reader.next();
        }
        reader
    }

    fn next(&mut self) -> u32 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                u32::from(*first)
            }
            None => {
                self.past += 1;
                0
            }
        }
    }

    /// Whether far more was read than was written.
    pub(super) fn is_past_end(&self) -> bool {
        self.past > MOST_PAST
    }

    /// Whether bytes are left that no bit came from.
    pub(super) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }
}

impl Coder for Reader<'_> {
    const READS: bool = true;

    fn code(&mut self, _: bool, one: u32) -> bool {
        let middle = split(self.low, self.high, one);
        let bit = self.value <= middle;
        match bit {
            true => self.high = middle,
            false => self.low = middle + 1,
        }
        while (self.low ^ self.high) >> 24 == 0 {
            self.low <<= 8;
            self.high = self.high << 8 | 0xff;
            self.value = self.value << 8 | self.next();
        }
        bit
    }
}

/// Codes nothing: what is told is learned.
#[derive(Debug)]
pub(super) struct Blank;

impl Coder for Blank {
    const READS: bool = false;

    fn code(&mut self, bit: bool, _: u32) -> bool {
        bit
    }
}
