//! What can be on or off in a swarm run, as a bit set that is printed and taken back.

use std::fmt;

use crate::random::Random;

/// Something that makes a run harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    /// Independent losses.
    Loss,
    /// Losses in bursts (Gilbert–Elliott).
    BurstLoss,
    /// Datagrams held back so that others overtake.
    Reorder,
    /// Datagrams that arrive twice.
    Duplicate,
    /// Flipped bits.
    Corrupt,
    /// Times in which nothing passes.
    Blackout,
    /// A bottleneck with a queue of a few packets.
    SmallQueue,
    /// A bottleneck.
    Rate,
    /// Another delay on the way back.
    Asymmetric,
    /// Delay that varies.
    Jitter,
    /// The server asks for address tokens.
    Retry,
    /// Flow-control windows of a few kilobytes.
    TinyWindows,
    /// One to three streams at a time.
    FewStreams,
    /// Unreliable datagrams.
    Datagrams,
    /// Key updates, by count and by hand.
    KeyUpdates,
    /// Streams reset by senders and stopped by receivers.
    ResetsAndStops,
    /// A receiver that takes a little at a time.
    SlowReader,
    /// The close happens while the faults are still on.
    LateClose,
    /// A close in the middle of things.
    AbruptClose,
    /// Two or three clients at one server.
    ManyClients,
    /// No encryption, so that the watch can read packets; needs a path that keeps order and bits.
    Plaintext,
    /// A bottleneck that marks ECN-capable packets where it would drop others.
    EcnMarks,
    /// Other congestion controllers while the connection runs.
    Switches,
    /// A receiver that acknowledges what was lost, once it was declared lost; needs plaintext.
    HideLosses,
    /// A receiver that claims lost packets one by one, long after; needs plaintext.
    ClaimLate,
    /// A receiver that makes many ACK frames of one; needs plaintext.
    SplitAcks,
    /// A receiver that acknowledges rarely, a lot at a time; needs plaintext.
    StretchAcks,
    /// A host that stops for up to a minute and then goes on.
    Freeze,
    /// Links that clear or change ECN bits.
    EcnRewrite,
    /// NATs before the clients that forget mappings, at times or after silence.
    Nat,
    /// Paths of other sizes than 1200, and ends that look for them.
    PathMtu,
    /// Sizes that change on the way, most often to less: black holes.
    MtuSteps,
    /// Routers that tell senders of packets that are too big.
    TooBig,
    /// Streams in groups and orders; datagrams of several senders, with ages, orders and ids.
    Flows,
    /// ACKs for many packets, long after them.
    SparseAcks,
    /// Connection IDs of other lengths, and none on clients.
    CidLengths,
    /// A client that goes to another address of its own, and knows it.
    Moves,
}

const ALL: [Feature; 37] = [
    Feature::Loss,
    Feature::BurstLoss,
    Feature::Reorder,
    Feature::Duplicate,
    Feature::Corrupt,
    Feature::Blackout,
    Feature::SmallQueue,
    Feature::Rate,
    Feature::Asymmetric,
    Feature::Jitter,
    Feature::Retry,
    Feature::TinyWindows,
    Feature::FewStreams,
    Feature::Datagrams,
    Feature::KeyUpdates,
    Feature::ResetsAndStops,
    Feature::SlowReader,
    Feature::LateClose,
    Feature::AbruptClose,
    Feature::ManyClients,
    Feature::Plaintext,
    Feature::EcnMarks,
    Feature::Switches,
    Feature::HideLosses,
    Feature::ClaimLate,
    Feature::SplitAcks,
    Feature::StretchAcks,
    Feature::Freeze,
    Feature::EcnRewrite,
    Feature::Nat,
    Feature::PathMtu,
    Feature::MtuSteps,
    Feature::TooBig,
    Feature::Flows,
    Feature::SparseAcks,
    Feature::CidLengths,
    Feature::Moves,
];

/// From here on features have dice of their own: seeds keep what they drew before these existed.
const LATER: usize = Feature::HideLosses as usize;

/// Network faults come first, up to here.
const FAULTS: usize = 10;

/// At most this many network faults at a time.
const MAX_FAULTS: usize = 5;

/// Stream of dice that decides the features.
const STREAM: u64 = 1000;

/// The same for the later ones.
const LATER_STREAM: u64 = 1001;

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// None.
    pub const NONE: Self = Self(0);
    /// All.
    pub const ALL: Self = Self((1 << ALL.len()) - 1);

    /// The features of a seed: each with probability 0.5 (those that hide others
    /// less often), at most five network faults.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, STREAM);
        let mut set = Self::NONE;
        for feature in &ALL[..LATER] {
            let p = match feature {
                Feature::AbruptClose => 0.1,
                Feature::ManyClients => 0.15,
                Feature::Plaintext | Feature::EcnMarks => 0.3,
                _ => 0.5,
            };
            if random.chance(p) {
                set = set.with(*feature);
            }
        }
        loop {
            let faults: Vec<Feature> = set.iter().filter(|f| (*f as usize) < FAULTS).collect();
            if faults.len() <= MAX_FAULTS {
                break;
            }
            set = set.without(random.pick(&faults));
        }
        if !cfg!(debug_assertions) {
            set = set.without(Feature::Plaintext);
        }
        if set.has(Feature::Plaintext) {
            // What only an AEAD notices must not happen: flipped bits, and packets so late that
            // their number or key phase is taken for another.
            for fault in [Feature::Corrupt, Feature::Reorder, Feature::Jitter] {
                set = set.without(fault);
            }
        }
        let mut random = Random::new(seed, LATER_STREAM);
        for feature in &ALL[LATER..] {
            let drawn = match feature {
                Feature::Freeze => random.chance(0.1),
                Feature::EcnRewrite | Feature::Nat | Feature::PathMtu => random.chance(0.15),
                Feature::Flows | Feature::SparseAcks => random.chance(0.2),
                // Who reads packets in plaintext knows IDs of eight bytes.
                Feature::CidLengths => random.chance(0.2) && !set.has(Feature::Plaintext),
                Feature::MtuSteps | Feature::TooBig => {
                    random.chance(0.5) && set.has(Feature::PathMtu)
                }
                Feature::Moves => random.chance(0.15),
                // Half of the plaintext worlds stay without an adversary.
                _ => random.chance(0.15) && set.has(Feature::Plaintext),
            };
            if drawn {
                set = set.with(*feature);
            }
        }
        set
    }

    /// From the bits that [`Self::bits`] gives.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// What drives a receiver that does not acknowledge as it should.
    pub const ADVERSARIES: Self = Self::NONE
        .with(Feature::HideLosses)
        .with(Feature::ClaimLate)
        .with(Feature::SplitAcks)
        .with(Feature::StretchAcks);

    /// Those that the swarm began with.
    pub const FIRST: Self = Self((1 << LATER) - 1);

    /// As a number.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether `feature` is on.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// With `feature` on.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// With `feature` off.
    #[must_use]
    pub fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u8))
    }

    /// What is in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are on.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        ALL.into_iter().filter(move |f| self.has(*f))
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter().map(|x| format!("{x:?}")).collect();
        write!(f, "{:#x} [{}]", self.0, names.join(" "))
    }
}
