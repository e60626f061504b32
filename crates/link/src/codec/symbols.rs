//! [`Symbols`]: numbers, large and small, as decisions under contexts.

use super::coder::Coder;
use super::memory::Memory;
use super::mixer::{self, Contexts, Tables, hash};

/// The bits below the first one of a number that have contexts; those after them have none.
const MODELLED_LOW: u32 = 3;
/// Bits of a tree whose words lie together.
const LINE_BITS: u32 = 4;
/// Of a double without a scale: its sign, its exponent and the first bits of its fraction.
const MODELLED_RAW: u32 = 20;
/// Sizes below 16 have a tree of their own.
const USUAL_SIZE_BITS: u32 = 4;
const SIZE_BITS: u32 = 7;

/// Kinds of decisions. A number takes [`Kind::of_number`] of them from its own on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// Three.
    Guess = 0,
    Type = 4,
    KnownName = 5,
    Name = 6,
    Letter = 7,
    SameScale = 8,
    HasScale = 9,
    Scale = 10,
    Corrected = 11,
    Correction = 12,
    Raw = 13,
    KnownTemplate = 14,
    Template = 15,
    // Numbers.
    Len = 16,
    Count = 20,
    ArrayLen = 24,
    Step = 28,
    Difference = 32,
    /// Three.
    TemplateGuess = 36,
}

impl Kind {
    fn number(self) -> u32 {
        self as u32
    }
}

/// What a number's decisions are, counted from its kind.
const IS_ZERO: u32 = 0;
const SIZE: u32 = 1;
const LOW: u32 = 2;
const SIGN: u32 = 3;

/// What was learned, and how decisions come from it.
#[derive(Debug)]
pub(super) struct Symbols {
    pub(super) memory: Memory,
    tables: Tables,
}

fn key(contexts: &Contexts, kind: u32) -> Contexts {
    contexts.map(|context| hash(context, kind))
}

impl Symbols {
    pub(super) fn new(words: u32) -> Self {
        Self {
            memory: Memory::new(words as usize),
            tables: Tables::new(),
        }
    }

    /// A bit that stands alone.
    fn decide(
        &mut self,
        coder: &mut impl Coder,
        kind: u32,
        contexts: &Contexts,
        bit: bool,
    ) -> bool {
        let words = mixer::words_of(&key(contexts, kind));
        mixer::code(&mut self.memory, &self.tables, coder, kind, words, bit)
    }

    /// One bit; `index` counts those of one kind.
    pub(super) fn bit(
        &mut self,
        coder: &mut impl Coder,
        (kind, index): (Kind, u32),
        contexts: &Contexts,
        bit: bool,
    ) -> bool {
        self.decide(coder, kind.number() + index, contexts, bit)
    }

    /// So many bits, each in the light of those before it.
    pub(super) fn tree(
        &mut self,
        coder: &mut impl Coder,
        kind: Kind,
        bits: u32,
        contexts: &Contexts,
        told: u32,
    ) -> u32 {
        self.branch(coder, kind.number(), bits, contexts, told)
    }

    fn branch(
        &mut self,
        coder: &mut impl Coder,
        kind: u32,
        bits: u32,
        contexts: &Contexts,
        told: u32,
    ) -> u32 {
        let keys = key(contexts, kind);
        let mut found = 1;
        let mut left = bits;
        while left > 0 {
            let lines = mixer::lines_of(&keys, found);
            let mut node = 1;
            for _ in 0..left.min(LINE_BITS) {
                left -= 1;
                let words = lines.map(|line| line + node);
                let bit = told >> left & 1 == 1;
                let bit = mixer::code(&mut self.memory, &self.tables, coder, kind, words, bit);
                node = node << 1 | u32::from(bit);
                found = found << 1 | u32::from(bit);
            }
        }
        found ^ 1 << bits
    }

    /// A number by its size, its sign and its bits.
    pub(super) fn signed(
        &mut self,
        coder: &mut impl Coder,
        kind: Kind,
        contexts: &Contexts,
        told: i64,
    ) -> i64 {
        let size = self.size(coder, kind, contexts, told.unsigned_abs());
        if size == 0 {
            return 0;
        }
        let of_size = contexts.map(|context| hash(context, size));
        let sign = kind.number() + SIGN;
        let is_negative = self.decide(coder, sign, &of_size, told < 0);
        let magnitude = self.low(coder, kind, &of_size, size, told.unsigned_abs());
        match is_negative {
            true => (magnitude as i64).wrapping_neg(),
            false => magnitude as i64,
        }
    }

    /// A number from 0 on, by its size and its bits.
    pub(super) fn whole(
        &mut self,
        coder: &mut impl Coder,
        kind: Kind,
        contexts: &Contexts,
        told: u64,
    ) -> u64 {
        let size = self.size(coder, kind, contexts, told);
        if size == 0 {
            return 0;
        }
        let of_size = contexts.map(|context| hash(context, size));
        self.low(coder, kind, &of_size, size, told)
    }

    /// How many bits a number has.
    fn size(&mut self, coder: &mut impl Coder, kind: Kind, contexts: &Contexts, told: u64) -> u32 {
        let size = u64::BITS - told.leading_zeros();
        let is_zero = kind.number() + IS_ZERO;
        if self.decide(coder, is_zero, contexts, size == 0) {
            return 0;
        }
        let kind = kind.number() + SIZE;
        let usual = if size < 1 << USUAL_SIZE_BITS { size } else { 0 };
        match self.branch(coder, kind, USUAL_SIZE_BITS, contexts, usual) {
            0 => self
                .branch(coder, kind, SIZE_BITS, contexts, size)
                .clamp(1, u64::BITS),
            usual => usual,
        }
    }

    /// The bits below the first one of a number of this size.
    fn low(
        &mut self,
        coder: &mut impl Coder,
        kind: Kind,
        of_size: &Contexts,
        size: u32,
        told: u64,
    ) -> u64 {
        let modelled = MODELLED_LOW.min(size - 1);
        let rest = size - 1 - modelled;
        let first = (told >> rest) as u32 & ((1 << modelled) - 1);
        let first = self.branch(coder, kind.number() + LOW, modelled, of_size, first);
        (1 << modelled | u64::from(first)) << rest | bare(coder, rest, told)
    }

    /// All bits of a double.
    pub(super) fn raw(&mut self, coder: &mut impl Coder, contexts: &Contexts, told: u64) -> u64 {
        let rest = u64::BITS - MODELLED_RAW;
        let first = self.tree(
            coder,
            Kind::Raw,
            MODELLED_RAW,
            contexts,
            (told >> rest) as u32,
        );
        u64::from(first) << rest | bare(coder, rest, told)
    }
}

/// So many bits as they are.
fn bare(coder: &mut impl Coder, bits: u32, told: u64) -> u64 {
    let mut found = 0;
    for index in (0..bits).rev() {
        let bit = coder.code(told >> index & 1 == 1, 1 << 15);
        found = found << 1 | u64::from(bit);
    }
    found
}
