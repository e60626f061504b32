//! What is known of a segment without reading it: where it begins and ends, and where some of its records are.

use super::format::HEAD;

/// Cap: places of records known for one segment: then every second is forgotten.
const MAX_INDEX: usize = 64;
/// Bytes between two places at first.
const STRIDE: u64 = 4 << 10;

/// One segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// What the disk knows it by; later ones are higher.
    pub(super) number: u64,
    /// Its bytes, those behind the last record included.
    pub(super) len: u64,
    /// The number of the first record.
    pub(super) first: u64,
    /// The number after the last record.
    pub(super) end: u64,
    /// Records that can be read, as far as is known.
    pub(super) records: u64,
    pub(super) index: Index,
}

impl Segment {
    /// One that has a head and nothing else.
    pub(super) fn new(number: u64, first: u64) -> Self {
        Self {
            number,
            len: HEAD as u64,
            first,
            end: first,
            records: 0,
            index: Index::default(),
        }
    }

    /// A record was written, or was found, at `offset`.
    pub(super) fn on_record(&mut self, seq: u64, offset: u64) {
        self.records += 1;
        self.end = seq + 1;
        self.index.push(seq, offset);
    }

    /// The closest place from which `seq` is found, as the number and the offset of a record.
    pub(super) fn place(&self, seq: u64) -> (u64, u64) {
        let places = &self.index.places;
        let at = places.partition_point(|place| place.0 <= seq);
        let place = places.get(at.saturating_sub(1)).copied();
        place.unwrap_or((self.first, HEAD as u64))
    }

    /// About how many of its records are not below `seq`.
    pub(super) fn records_from(&self, seq: u64) -> u64 {
        self.records.min(self.end.saturating_sub(seq))
    }
}

/// Places of records, in order: the first, and others at a distance that grows with the segment.
#[derive(Debug)]
pub(super) struct Index {
    places: Vec<(u64, u64)>,
    stride: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            stride: STRIDE,
        }
    }
}

impl Index {
    fn push(&mut self, seq: u64, offset: u64) {
        let is_far = |last: &(u64, u64)| offset >= last.1.saturating_add(self.stride);
        if !self.places.last().is_none_or(is_far) {
            return;
        }
        if self.places.len() == MAX_INDEX {
            let mut is_kept = false;
            self.places.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.stride *= 2;
        }
        self.places.push((seq, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_large_segment_is_bounded() {
        let mut segment = Segment::new(0, 10);
        for seq in 10..1_000_000 {
            segment.on_record(seq, HEAD as u64 + (seq - 10) * 300);
        }
        assert!(segment.index.places.len() <= MAX_INDEX);
        assert!(segment.index.places.len() >= MAX_INDEX / 2);
        for seq in [10, 11, 5_000, 700_000, 999_999] {
            let (place, offset) = segment.place(seq);
            assert!(place <= seq);
            assert_eq!(offset, HEAD as u64 + (place - 10) * 300);
            assert!((seq - place) * 300 <= 300_000_000 / (MAX_INDEX as u64 / 2) + STRIDE);
        }
        assert_eq!(segment.place(3), (10, HEAD as u64));
        assert_eq!(Segment::new(0, 7).place(9), (7, HEAD as u64));
        assert_eq!(segment.records_from(999_990), 10);
    }
}
