//! Numbers by the column that they stand in: the numbers that came in the same place before.
//!
//! A place is a slot and the texts that the record has said above it, so that each vessel's speed is a
//! column. A column knows its last number, in which unit and with how many digits it was short, and whether
//! a straight line through the last two did better.

use super::coder::Coder;
use super::layout::{COLUMN_BITS, COLUMN_LEN, COLUMNS, LAST_TIME};
use super::memory::Memory;
use super::mixer::hash;
use super::number::{Decimal, MAX_CORRECTION, SCALE_BITS, Scale};
use super::symbols::{Kind, Symbols};
use super::walk::Walk;

const CORRECTION_BITS: u32 = 3;
/// A straight line is drawn so far, in milliseconds.
const MAX_SPAN: u32 = 1 << 20;

/// The numbers that one place has had.
#[derive(Debug, Default, PartialEq)]
struct Column {
    /// 1 more than the index; 0 for integers, and where there was no number yet.
    scale: u32,
    mantissa: i64,
    /// The last difference, and the milliseconds that it took.
    step: i64,
    span: u32,
    /// The last time; of its milliseconds the low bits.
    time: u32,
    /// How far off the last number was, and a straight line through the last two: the mean bits, × 8.
    errors: (u32, u32),
    /// The size of the last difference.
    last_size: u32,
}

impl Column {
    /// The column of a place; a new one where another place had its words.
    fn load(memory: &Memory, place: u32) -> Self {
        let at = column_at(place);
        if memory.get(at) != place {
            return Self::default();
        }
        let traits = memory.get(at + 1);
        Self {
            scale: traits & 0x1ff,
            last_size: traits >> 9 & 0x7f,
            errors: (traits >> 16 & 0xff, traits >> 24),
            mantissa: memory.get_i64(at + 2),
            step: memory.get_i64(at + 4),
            span: memory.get(at + 6),
            time: memory.get(at + 7),
        }
    }

    fn store(&self, memory: &mut Memory, place: u32) {
        let at = column_at(place);
        let (still, straight) = self.errors;
        let traits = self.scale | self.last_size << 9 | still << 16 | straight << 24;
        let (mantissa, step) = (self.mantissa as u64, self.step as u64);
        let words = [
            place,
            traits,
            mantissa as u32,
            (mantissa >> 32) as u32,
            step as u32,
            (step >> 32) as u32,
            self.span,
            self.time,
        ];
        for (index, word) in words.into_iter().enumerate() {
            memory.set(at + index as u32, word);
        }
    }

    fn goes_straight(&self) -> bool {
        self.errors.1 < self.errors.0
    }

    /// Where a straight line through the last two comes to now.
    fn straight(&self, now: i64) -> i64 {
        let since = (now as u32).wrapping_sub(self.time);
        if self.span == 0 || since > MAX_SPAN {
            return self.mantissa;
        }
        let step = i128::from(self.step) * i128::from(since) / i128::from(self.span);
        i64::try_from(step).map_or(self.mantissa, |step| self.mantissa.wrapping_add(step))
    }

    fn learn(&mut self, value: i64, straight: i64, now: i64) {
        let bits = |expected: i64| {
            let off = value.wrapping_sub(expected).unsigned_abs();
            (u64::BITS - off.leading_zeros()) * 8
        };
        let mean = |mean: u32, new: u32| ((mean * 7 + new + 4) / 8).min(255);
        let step = value.wrapping_sub(self.mantissa);
        self.errors = (
            mean(self.errors.0, bits(self.mantissa)),
            mean(self.errors.1, bits(straight)),
        );
        self.last_size = u64::BITS - step.unsigned_abs().leading_zeros();
        self.span = (now as u32).wrapping_sub(self.time).min(MAX_SPAN);
        self.time = now as u32;
        self.step = step;
        self.mantissa = value;
    }

    /// Goes over to another scale: the same number, in its digits.
    fn change_scale(&mut self, usual: Option<Scale>, scale: Scale) {
        let last = usual.map(|usual| {
            usual.double(Decimal {
                mantissa: self.mantissa,
                correction: 0,
            })
        });
        self.mantissa = last.and_then(|last| scale.nearest(last)).unwrap_or(0);
        self.step = 0;
        self.scale = scale.index() + 1;
    }
}

fn column_at(place: u32) -> u32 {
    COLUMNS + (hash(place, 5) >> (32 - COLUMN_BITS)) * COLUMN_LEN
}

impl Symbols {
    /// A timestamp, by the one before it in the batch.
    pub(super) fn time(
        &mut self,
        coder: &mut impl Coder,
        walk: &mut Walk,
        slot: u32,
        told: i64,
    ) -> i64 {
        let contexts = [
            hash(hash(slot, walk.kinds.0), walk.kinds.1),
            hash(slot, walk.kinds.0),
            slot,
        ];
        let step = self.signed(coder, Kind::Step, &contexts, told.wrapping_sub(walk.time));
        walk.time = walk.time.wrapping_add(step);
        self.memory.set_i64(LAST_TIME, walk.time);
        walk.time
    }

    pub(super) fn int(&mut self, coder: &mut impl Coder, walk: &Walk, slot: u32, told: i64) -> i64 {
        let place = hash(slot, walk.texts);
        let mut column = Column::load(&self.memory, place);
        let value = self.mantissa(coder, walk, slot, &mut column, told);
        column.store(&mut self.memory, place);
        value
    }

    /// The bits of a double.
    pub(super) fn double<C: Coder>(
        &mut self,
        coder: &mut C,
        walk: &Walk,
        slot: u32,
        told: u64,
    ) -> u64 {
        let place = hash(slot, walk.texts);
        let path = hash(slot, walk.last_text);
        let mut column = Column::load(&self.memory, place);
        let double = f64::from_bits(told);
        let usual = Scale::of_index(column.scale.wrapping_sub(1));
        let in_usual = usual.and_then(|scale| scale.decimal(double));
        let contexts = [place, path, slot];
        let scale = match self.bit(coder, (Kind::SameScale, 0), &contexts, in_usual.is_some()) {
            true => usual,
            false => {
                let found = if C::READS { None } else { Scale::find(double) };
                match self.bit(coder, (Kind::HasScale, 0), &contexts, found.is_some()) {
                    true => {
                        let index = found.map_or(0, Scale::index);
                        let index = self.tree(coder, Kind::Scale, SCALE_BITS, &contexts, index);
                        Scale::of_index(index)
                    }
                    false => None,
                }
            }
        };
        let Some(scale) = scale else {
            return self.raw(coder, &contexts, told);
        };
        let told = match usual == Some(scale) {
            true => in_usual,
            false => {
                column.change_scale(usual, scale);
                scale.decimal(double)
            }
        };
        let told = told.unwrap_or_default();
        let mantissa = self.mantissa(coder, walk, slot, &mut column, told.mantissa);
        let is_corrected = told.correction != 0;
        let contexts = contexts.map(|context| hash(context, column.scale));
        let correction = match self.bit(coder, (Kind::Corrected, 0), &contexts, is_corrected) {
            true => {
                let index = (told.correction + MAX_CORRECTION) as u32;
                let index = self.tree(coder, Kind::Correction, CORRECTION_BITS, &contexts, index);
                i64::from(index) - MAX_CORRECTION
            }
            false => 0,
        };
        column.store(&mut self.memory, place);
        let decimal = Decimal {
            mantissa,
            correction,
        };
        scale.double(decimal).to_bits()
    }

    /// A whole number of a column, by what the column's last ones were.
    fn mantissa(
        &mut self,
        coder: &mut impl Coder,
        walk: &Walk,
        slot: u32,
        column: &mut Column,
        told: i64,
    ) -> i64 {
        let place = hash(slot, walk.texts);
        let path = hash(hash(slot, walk.last_text), column.scale);
        let straight = column.straight(walk.time);
        let expected = match column.goes_straight() {
            true => straight,
            false => column.mantissa,
        };
        let contexts = [
            hash(place, column.last_size),
            path,
            hash(slot, column.scale),
        ];
        let off = told.wrapping_sub(expected);
        let value = expected.wrapping_add(self.signed(coder, Kind::Difference, &contexts, off));
        column.learn(value, straight, walk.time);
        value
    }
}
