//! The script of one connection: plain data, drawn by the swarm or written by a scenario.

use std::time::Duration;

use towline_quic::Algorithm;
use towline_wire::{Direction, Side};

/// What happens on one direction of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalfPlan {
    /// Bytes the sender wants to write.
    pub size: u64,
    /// The sender resets after writing this many (at `size`: right after finishing).
    pub reset_at: Option<u64>,
    /// The receiver asks to stop after reading this many.
    pub stop_at: Option<u64>,
}

/// A stream one end opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPlan {
    /// Whether there is a way back.
    pub direction: Direction,
    /// When it is opened, counted from the handshake's end.
    pub start: Duration,
    /// What the opener sends.
    pub forward: HalfPlan,
    /// What the acceptor sends, on a bidirectional stream.
    pub back: HalfPlan,
}

/// Datagrams one end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPlan {
    /// How many.
    pub count: u32,
    /// Payload bytes of each; cut to what fits.
    pub size: usize,
    /// Time between two.
    pub interval: Duration,
}

/// A close by the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosePlan {
    /// Who closes.
    pub side: Side,
    /// In the middle of things, this long after the handshake; `None`: when all is done.
    pub after: Option<Duration>,
    /// The application's code.
    pub code: u64,
    /// Its reason; the engine sends up to 512 bytes of it.
    pub reason: Vec<u8>,
}

/// What one end does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndPlan {
    /// Streams it opens, by start time.
    pub streams: Vec<StreamPlan>,
    /// Datagrams it sends.
    pub datagrams: Option<DatagramPlan>,
    /// When it asks for new keys, counted from the handshake's end.
    pub key_updates: Vec<Duration>,
    /// Other congestion controllers it goes on with, and when, counted from the handshake's end.
    pub switches: Vec<(Duration, Algorithm)>,
    /// A slow reader: this many bytes an interval.
    pub pace: Option<(u64, Duration)>,
    /// Largest read and write.
    pub chunk: usize,
    /// Its streams stand in groups and orders, and its datagrams are of several senders, some of them
    /// with an age; what became of each is asked.
    pub flows: bool,
}

/// What both ends do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationPlan {
    /// The client's part.
    pub client: EndPlan,
    /// The server's part.
    pub server: EndPlan,
    /// Who closes, and when.
    pub close: ClosePlan,
}

impl ConversationPlan {
    /// Stream bytes all parts want to move.
    pub fn total_bytes(&self) -> u64 {
        let streams = self.client.streams.iter().chain(&self.server.streams);
        streams
            .map(|s| {
                let back = match s.direction {
                    Direction::Bidirectional => s.back.size,
                    Direction::Unidirectional => 0,
                };
                s.forward.size + back
            })
            .sum()
    }

    /// Streams of both parts.
    pub fn stream_count(&self) -> usize {
        self.client.streams.len() + self.server.streams.len()
    }
}
