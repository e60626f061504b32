//! The chance of the next bit: what several contexts say, mixed by how right each has been.
//!
//! Each context, a hash, has a word: a probability that moves towards what was seen, fast at first and
//! then slowly. The logits of the contexts' probabilities are added with weights that learn too (Mahoney,
//! "Adaptive Weighing of Context Models for Lossless Data Compression", 2005). Whole numbers only: both
//! ends must come to the same, on any machine.

use super::coder::Coder;
use super::memory::Memory;

/// Contexts of a decision.
pub(super) const INPUTS: usize = 3;
pub(super) type Contexts = [u32; INPUTS];

const PROBABILITY_BITS: u32 = 17;
/// Words of probabilities.
const PROBABILITIES: u32 = 1 << PROBABILITY_BITS;
/// Sets of weights: a kind of decision, and how much its first context has seen.
const KINDS: u32 = 64;
const SEEN: u32 = 8;
const WEIGHTS: u32 = KINDS * SEEN * INPUTS as u32;
/// Words that a mixer needs.
pub(super) const WORDS: u32 = PROBABILITIES + WEIGHTS;

/// A probability adapts by a share of 1 / (this + 1.5) at least.
const LIMIT: u32 = 250;
/// Weights in units of 1 / 16384: what one is before it has learned, and how large it gets.
const FIRST_WEIGHT: i32 = 7_500;
const MOST_WEIGHT: i32 = 1 << 16;
/// How fast weights learn.
const RATE: i32 = 14;
/// The logit's unit is 1 / 256; it ends here.
const MOST: i32 = 2047;
/// The least chance that is given to either bit, of 65536.
const LEAST: u32 = 24;
/// Off by less than this, of 65536, a decision was all but certain.
const CERTAIN: i32 = 1000;

/// 65536 / (1 + e^-x) for x = -8, -7.5, … 8.
const LOGISTIC: [u32; 33] = [
    22, 36, 60, 98, 162, 267, 439, 720, 1179, 1921, 3108, 4972, 7812, 11955, 17625, 24743, 32768,
    40793, 47911, 53581, 57724, 60564, 62428, 63615, 64357, 64816, 65097, 65269, 65374, 65438,
    65476, 65500, 65514,
];

/// The probability of a logit, of 65536.
fn squash(logit: i32) -> u32 {
    let at = (logit.clamp(-MOST, MOST) + 2048) as u32;
    let (step, part) = (at as usize >> 7, at & 127);
    LOGISTIC[step] + (((LOGISTIC[step + 1] - LOGISTIC[step]) * part) >> 7)
}

/// The logits of the probabilities, in steps of 1 / 4096, and shares by which probabilities move.
#[derive(Debug)]
pub(super) struct Tables {
    logits: Box<[i16; 4096]>,
    shares: [i32; LIMIT as usize + 1],
}

impl Tables {
    pub(super) fn new() -> Self {
        let mut logits = Box::new([0; 4096]);
        let mut next = 0;
        for logit in -MOST..=MOST {
            let reached = (squash(logit) >> 4) as usize;
            while next <= reached {
                logits[next] = logit as i16;
                next += 1;
            }
        }
        logits[next..].fill(MOST as i16);
        let share = |seen: usize| 65536 / (2 * seen as i32 + 3);
        Self {
            logits,
            shares: std::array::from_fn(share),
        }
    }
}

/// A hash of two numbers.
pub(super) fn hash(a: u32, b: u32) -> u32 {
    let mixed = (a ^ b.wrapping_mul(0x85eb_ca6b).rotate_left(13)).wrapping_mul(0xcc9e_2d51);
    (mixed ^ mixed >> 15).wrapping_mul(0x1b87_3593)
}

/// The words of a bit that stands alone.
pub(super) fn words_of(contexts: &Contexts) -> Contexts {
    contexts.map(|context| context.wrapping_mul(0x2c1b_3c6d) >> (32 - PROBABILITY_BITS))
}

/// Where the 16 words of up to four bits begin that follow `before`; they lie in one line of the cache.
pub(super) fn lines_of(contexts: &Contexts, before: u32) -> Contexts {
    let before = before.wrapping_mul(0x9e37_79b1);
    contexts.map(|context| {
        let mixed = context.wrapping_add(before).wrapping_mul(0x2c1b_3c6d);
        mixed >> (32 - PROBABILITY_BITS + 4) << 4
    })
}

/// Codes a bit of a kind of decision, and learns it; `words` are those of its contexts, the most exact one
/// first.
pub(super) fn code(
    memory: &mut Memory,
    tables: &Tables,
    coder: &mut impl Coder,
    kind: u32,
    words: Contexts,
    bit: bool,
) -> bool {
    // A word of 0 is a half, never moved.
    let states = words.map(|at| memory.get(at) ^ 1 << 31);
    let logits = states.map(|state| i32::from(tables.logits[(state >> 20) as usize]));
    let seen = u32::BITS - (states[0] & 0xffff).min(127).leading_zeros();
    let set = PROBABILITIES + (kind % KINDS * SEEN + seen) * INPUTS as u32;
    let sets: Contexts = std::array::from_fn(|index| set + index as u32);
    let weights = sets.map(|at| (memory.get(at) as i32).wrapping_add(FIRST_WEIGHT));
    let sum: i32 = weights
        .iter()
        .zip(logits)
        .map(|(weight, logit)| weight * logit)
        .sum();
    let one = squash((sum >> 14).clamp(-MOST, MOST));
    let bit = coder.code(bit, one.clamp(LEAST, 65536 - LEAST));
    let wrong = (i32::from(bit) << 16) - one as i32;
    // What was all but certain and came teaches little, and is most of what comes.
    if wrong.abs() < CERTAIN {
        return bit;
    }
    let goal = if bit { 0xffff } else { 0 };
    memory.change(words, |index, _| {
        let (before, times) = ((states[index] >> 16) as i32, states[index] & 0xffff);
        let after = before + (((goal - before) * tables.shares[times as usize]) >> 15);
        ((after as u32) << 16 | (times + 1).min(LIMIT)) ^ 1 << 31
    });
    memory.change(sets, |index, _| {
        let learned = (logits[index] * (wrong >> 2) * RATE) >> 20;
        let weight = (weights[index] + learned).clamp(-MOST_WEIGHT, MOST_WEIGHT);
        (weight - FIRST_WEIGHT) as u32
    });
    bit
}
