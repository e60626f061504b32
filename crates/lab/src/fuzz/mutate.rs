//! A stable random mutator: bit flips, splices, insertions of interesting bytes.
//!
//! It keeps inputs that gave a signature not seen before, in memory. It is not guided by coverage;
//! that is libFuzzer's job (`fuzz/`). Used by the `fuzz` program.

use std::collections::BTreeSet;

use crate::random::Random;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Runs one input; returns a signature of what happened, and panics on a broken promise.
    pub run: fn(&[u8]) -> u64,
    /// Most bytes of an input.
    pub max_len: usize,
    /// Inputs to start from besides a corpus, with their names.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
    tokens: &'static [&'static [u8]],
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "agent",
        run: super::agent::run,
        max_len: 200,
        seeds: super::agent::seeds,
        tokens: &[],
    },
    Target {
        name: "packet",
        run: super::packet::run,
        max_len: 2_000,
        seeds: super::packet::seeds,
        tokens: PACKET_TOKENS,
    },
    Target {
        name: "frame",
        run: super::frame::run,
        max_len: 2_000,
        seeds: Vec::new,
        tokens: FRAME_TOKENS,
    },
    #[cfg(debug_assertions)]
    Target {
        name: "connection",
        run: super::connection::run,
        max_len: 4_000,
        seeds: Vec::new,
        tokens: FRAME_TOKENS,
    },
    Target {
        name: "message",
        run: super::message::run,
        max_len: 1_000,
        seeds: Vec::new,
        tokens: MESSAGE_TOKENS,
    },
    Target {
        name: "http3_frames_capsules",
        run: super::http3::run,
        max_len: 2_000,
        seeds: Vec::new,
        tokens: HTTP3_TOKENS,
    },
    Target {
        name: "http3_server",
        run: super::http3_server::run,
        max_len: 4_000,
        seeds: super::http3_server::seeds,
        tokens: SERVER_TOKENS,
    },
    Target {
        name: "link_codec",
        run: super::link_codec::run,
        max_len: 2_000,
        seeds: super::link_codec::seeds,
        tokens: LINK_TOKENS,
    },
    Target {
        name: "link_messages",
        run: super::link_messages::run,
        max_len: 4_000,
        seeds: super::link_messages::seeds,
        tokens: MESSAGES_TOKENS,
    },
    Target {
        name: "link_spool",
        run: super::link_spool::run,
        max_len: 2_000,
        seeds: super::link_spool::seeds,
        tokens: SPOOL_TOKENS,
    },
    Target {
        name: "qpack_decoder",
        run: super::qpack_decoder::run,
        max_len: 1_000,
        seeds: Vec::new,
        tokens: QPACK_TOKENS,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|t| t.name == name).copied()
}

const LINK_TOKENS: &[&[u8]] = &[
    b"\x00\x00",
    b"\n",
    b"{\"a\":",
    b"[[[[",
    b"\"2014-08-15T19:02:01.302Z\"",
    b"123456789012345678901234567890",
    b"-0.0",
    b"1e-308",
    b"\x28\xb5\x2f\xfd",
];

/// Messages behind their lengths, and steps of a talk.
const MESSAGES_TOKENS: &[&[u8]] = &[
    b"\x00\x0f\x00\x01\x04fuzz\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00",
    b"\x00\x08\x01\x00\x01\x00\x05\x01\x00\x09",
    b"\x00\x04\x02\x05\x03\x01\x01",
    b"\x00\x03\x03\x09\x02",
    b"\x00\x06\x41\x00\x02\x01\x03\x01",
    b"\x00\x05\x40\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00\x40",
    b"\x02\xff\x04\x00",
    b"\x05\x01\x08\x02\x0e\x00",
];

/// Steps of the target, and the beginning of a head.
const SPOOL_TOKENS: &[&[u8]] = &[
    b"TwSp\x00\x00\x00\x01",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x05\x30",
    b"\x01\x00\x01\x01",
    b"\x01\x01\x01\x01",
    b"\x01\x02\x20\x20",
    b"\x03\x02\x01\x00",
    b"\x04\x01\x00\x00",
    b"\x06\x05\x00\x00",
    b"\x07\x00\x04\x00abcd",
];

const PACKET_TOKENS: &[&[u8]] = &[
    b"\xc0\x00\x00\x00\x01",
    b"\xe0\x00\x00\x00\x01",
    b"\xf0\x00\x00\x00\x01",
    b"\x80\x00\x00\x00\x00",
    b"\x40",
    b"\x44\x9e",
    b"\x08",
    b"\x14",
    b"\x00\x00\x00\x01",
    b"towline null tag",
    b"\x06\x00\x40\x20",
    b"\xff\xff\xff\xff",
];

/// Starts of frames, with offsets and lengths at their edges.
const FRAME_TOKENS: &[&[u8]] = &[
    b"\x01",
    b"\x02\x05\x00\x00\x05",
    b"\x02\x05\x00\x01\x00\x00\x01",
    b"\x03\x05\x00\x00\x05\x01\x00\x01",
    b"\x02\xbf\xff\xff\xff\x00\x00\x00",
    b"\x04\x00\x00\x05",
    b"\x04\x01\x07\x00",
    b"\x05\x00\x01",
    b"\x06\x00\x04\x04\x00\x00\x00",
    b"\x07\x01a",
    b"\x08\x00ab",
    b"\x0a\x00\x02ab",
    b"\x0b\x02\x01a",
    b"\x0e\x00\x05\x02ab",
    b"\x0f\x00\x05\x00",
    b"\x0e\x04\x80\x00\x4e\x1f\x01z",
    b"\x0e\x02\xff\xff\xff\xff\xff\xff\xff\xfe\x01z",
    b"\x10\x80\x0f\xff\xff",
    b"\x11\x00\x80\x0f\xff\xff",
    b"\x12\x40\xff",
    b"\x13\xd0\x00\x00\x00\x00\x00\x00\x00",
    b"\x14\x05",
    b"\x15\x00\x05",
    b"\x16\x05",
    b"\x17\x05",
    b"\x18\x04\x00\x08abcdefgh0123456789abcdef",
    b"\x18\x05\x05\x08bcdefghi0123456789abcdef",
    b"\x19\x00",
    b"\x19\x01",
    b"\x19\x05",
    b"\x1a01234567",
    b"\x1b01234567",
    b"\x1c\x0a\x00\x02no",
    b"\x1d\x0a\x02no",
    b"\x1e",
    b"\x1f",
    b"\x40\xaf\x00\x09\x80\x00\x61\xa8\x03",
    b"\x40\xaf\x01\x00\x00\x00",
    b"\x30xyz",
    b"\x31\x03xyz",
    b"\x40\x01",
    b"\x00\x00\x00\x00",
    // Marks and opcodes of the connection target.
    b"\xff\x01",
    b"\xff\x02",
    b"\xff\x03",
    b"\xff\x04",
    b"\xff\x05",
    b"\xff\x06",
    b"\xff\x07",
    b"\xff\x09",
    b"\xff\x0a",
    b"\xff\x0b",
    b"\xff\x0c",
    b"\xff\x0d",
    b"\xff\x0e",
    b"\xff\x0f",
    b"\xff\x11",
    b"\xff\x12",
];

/// Heads, and steps of each kind.
/// Settings, frames and capsules with their types and lengths.
const HTTP3_TOKENS: &[&[u8]] = &[
    b"\x04\x06\x01\x40\x64\x06\x40\x64",
    b"\x04\x02\x33\x01",
    b"\xab\x60\x37\x42\x01",
    b"\x80\x00\x2b\x61\x05",
    b"\x07\x01\x04",
    b"\x80\x0f\x07\x00\x05\x00u=1,i",
    b"\x68\x43\x06\x00\x00\x00\x07ab",
    b"\x80\x00\x78\xae\x00",
    b"\x99\x0b\x4d\x3d\x01\x05",
    b"\x99\x0b\x4d\x3f\x08\xd0\x00\x00\x00\x00\x00\x00\x00",
    b"\x40\x41\x00",
    b"\x21\x03abc",
];

/// Steps of the target, some of them with frames and capsules.
const SERVER_TOKENS: &[&[u8]] = &[
    b"\x00\x00",
    b"\x00\x01",
    b"\x01\x03\x01\x00",
    b"\x08\x03\x0f",
    b"\x08\x03\x40\xff",
    b"\x09\x04\x02",
    b"\x09\x04\x03",
    b"\x09\x05\x00",
    b"\x09\x05\x01",
    b"\x0a\x05\x04\x00abc",
    b"\x0b\x04\x07\x01\x00\x00\x00\x07ab",
    b"\x0b\x04\x01\x02",
    b"\x0b\x04\x03\x03\x43\xff",
    b"\x0b\x04\x02\x05\x05",
    b"\x0c\x00\x03abc",
    b"\x0c\x01\x03abc",
    b"\x0d\x00\x02ab",
    b"\x0e\x00\x00",
    b"\x8e\x00\x01",
    b"\x0f\x00\x40\x67",
    b"\x10\x00\x07",
    b"\x12\x00",
    b"\x12\x10",
    b"\x13\x00\x32",
    b"\x16\x00\x44\x00",
    b"\x19\x80",
    b"\x1a\x00\x20",
    b"\x21\x00",
];

/// Pieces of the target: instructions and sections behind their kind and length.
const QPACK_TOKENS: &[&[u8]] = &[
    b"\x00\x03\x3f\xbd\x01",
    b"\x00\x04\x41a\x01b",
    b"\x00\x04\xc1\x02/a",
    b"\x00\x03\x80\x01x",
    b"\x00\x01\x00",
    b"\x05\x03\x02\x00\x80",
    b"\x0d\x03\x03\x00\x10",
    b"\x0d\x04\x03\x81\x10\x11",
    b"\x05\x04\x00\x00\xc1\xd1",
    b"\x02\x01\x01",
    b"\x02\x01\x84",
    b"\x0b\x04abcd",
    b"\x0c\x00",
    b"\x51\x82\x07\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x3f",
];

const MESSAGE_TOKENS: &[&[u8]] = &[
    b"\x03\x09\x6d\x4c\x00",
    b"\x04\x09\x6d\x4d\x00\x0a",
    b"\x0b\x01\x6d\x4d\x00\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00\x00\x80\x01\x00\x00",
    b"\x00\x80\x0f\xff\xff\x80\x01\x00\x00",
    b"\x00\x80\x10\x00\x00\x01",
    b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x01\x44\x00\x01\x02\xff",
    b"\x01\x44\x01\x01\x02\xff",
    b"\x01\x80\x01\x00\x00\x02\x28\xff",
    b"\x02\x00",
    b"\xf3",
    b"\x04\x01",
    b"\x04\x80\x00\x80\x00",
    b"\x05",
    b"\x06",
    b"\x07",
    b"\x17",
    b"\x18",
    b"\x08",
    b"\x09\x01",
    b"\x09\x80\x0f\xff\xff",
    b"\x09\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x0a\x05\x09",
    b"\x1a\x80\x10\x00\x00\x00",
    b"\x0b\x01",
    b"\x1c\x7f\xff",
    b"\x0d\x01",
    b"\x1d\x05",
    b"\x0f\x01",
    b"\x1f\x7f\xff",
    b"\x2f\x01",
];

/// Makes inputs and remembers which were worth keeping.
#[derive(Debug)]
pub struct Mutator {
    random: Random,
    target: Target,
    pool: Vec<Vec<u8>>,
    signatures: BTreeSet<u64>,
}

/// Inputs kept at most; a new find then replaces a random one.
const MAX_POOL: usize = 20_000;

impl Mutator {
    /// A mutator for `target`; the same seed and answers give the same inputs.
    pub fn new(target: Target, seed: u64) -> Self {
        Self {
            random: Random::new(seed, 77),
            target,
            pool: Vec::new(),
            signatures: BTreeSet::new(),
        }
    }

    /// Inputs kept.
    pub fn pool_len(&self) -> usize {
        self.pool.len()
    }

    /// Tells what `input` did; it is kept if that is new.
    pub fn learn(&mut self, input: &[u8], signature: u64) {
        if !self.signatures.insert(signature) {
            return;
        }
        if self.pool.len() < MAX_POOL {
            self.pool.push(input.to_vec());
        } else {
            let place = self.random.below(MAX_POOL as u64) as usize;
            self.pool[place] = input.to_vec();
        }
    }

    /// The next input to try.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.any();
        for _ in 0..self.random.log_whole(1, 12) {
            self.mutate(&mut input);
        }
        input.truncate(self.target.max_len);
        input
    }

    fn any(&mut self) -> Vec<u8> {
        match self.pool.len() as u64 {
            0 => Vec::new(),
            n => self.pool[self.random.below(n) as usize].clone(),
        }
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let r = &mut self.random;
        let len = input.len() as u64;
        let at = r.below(len + 1) as usize;
        match r.below(8) {
            0 if len > 0 => {
                let at = r.below(len) as usize;
                input[at] ^= 1 << r.below(8);
            }
            1 if len > 0 => {
                let at = r.below(len) as usize;
                let edge = r.pick(&[0, 1, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xff]);
                input[at] = if r.chance(0.5) { edge } else { r.bits() as u8 };
            }
            2 if len > 0 => {
                let end = (at + r.log_whole(1, 64) as usize).min(input.len());
                input.drain(at.min(end)..end);
            }
            3 if len > 0 => {
                // A piece once more, somewhere else.
                let end = (at + r.log_whole(1, 200) as usize).min(input.len());
                let piece = input[at.min(end)..end].to_vec();
                let to = r.below(len + 1) as usize;
                input.splice(to..to, piece);
            }
            4 => {
                let other = self.any();
                let from = self.random.below(other.len() as u64 + 1) as usize;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 => {
                let n = r.log_whole(1, 16);
                let noise: Vec<u8> = (0..n).map(|_| r.bits() as u8).collect();
                input.splice(at..at, noise);
            }
            _ => {
                let token = r.pick(self.target.tokens);
                input.splice(at..at, token.iter().copied());
            }
        }
    }
}
