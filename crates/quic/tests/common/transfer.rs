//! Bytes on one stream, written and read in turns, so that a test may do things in between.

use std::time::Duration;

use bytes::Bytes;
use towline_quic::{Direction, StreamId, WriteError};

use super::{Pair, ms, pattern};

/// A transfer under way.
pub struct Transfer {
    from: usize,
    id: StreamId,
    left: Bytes,
    expected: Vec<u8>,
    finished: bool,
    accepted: Option<StreamId>,
    over: bool,
    /// What arrived so far.
    pub got: Vec<u8>,
}

impl Transfer {
    /// `from` is to send `len` bytes on a stream of its own.
    pub fn start(pair: &mut Pair, from: usize, len: usize) -> Self {
        let expected = pattern(len);
        Self {
            from,
            id: pair.conn(from).open(Direction::Unidirectional).unwrap(),
            left: Bytes::from(expected.clone()),
            finished: false,
            accepted: None,
            over: false,
            got: Vec::with_capacity(len),
            expected,
        }
    }

    /// Writes and reads what can be; `true` at the end, when all bytes are as they were.
    pub fn turn(&mut self, pair: &mut Pair) -> bool {
        if self.over {
            return true;
        }
        while !self.left.is_empty() {
            match pair.conn(self.from).write(self.id, &mut self.left) {
                Ok(_) => {}
                Err(WriteError::Blocked) => break,
                Err(e) => panic!("{e}"),
            }
        }
        if self.left.is_empty() && !self.finished {
            self.finished = true;
            pair.conn(self.from).finish(self.id).unwrap();
        }
        let to = 1 - self.from;
        if self.accepted.is_none() {
            self.accepted = pair.conn(to).accept(Direction::Unidirectional);
        }
        let id = self.accepted;
        self.over = id.is_some_and(|id| pair.read_available(to, id, &mut self.got));
        if self.over {
            assert_eq!(self.got.len(), self.expected.len());
            assert!(self.got == self.expected, "bytes differ");
        }
        self.over
    }

    /// Goes on for `time`; `true` at the end.
    pub fn run_for(&mut self, pair: &mut Pair, time: Duration) -> bool {
        let end = pair.now + time;
        while pair.now < end && !self.over {
            pair.flush();
            pair.run_for(ms(5));
            self.turn(pair);
        }
        self.over
    }

    /// Goes on to the end, which must come within `limit`.
    pub fn finish(mut self, pair: &mut Pair, limit: Duration) {
        let over = self.run_for(pair, limit);
        assert!(over, "{} of {} bytes", self.got.len(), self.expected.len());
    }
}
