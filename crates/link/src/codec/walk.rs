//! [`Walk`] and [`Tape`]: how far a record has been walked, and what was found.

use super::Corrupt;
use super::record::{MAX_DEPTH, Node};
use super::template::Leaf;

/// What the walk of a record knows so far.
#[derive(Debug)]
pub(super) struct Walk {
    /// The texts and integers of this record.
    pub(super) said: u32,
    /// The texts alone.
    pub(super) texts: u32,
    /// The last text and where it stood.
    pub(super) last_text: u32,
    /// The last texts of the record before and of the one before that.
    pub(super) kinds: (u32, u32),
    pub(super) time: i64,
    depth: usize,
}

impl Walk {
    /// At the beginning of a record, after records of these kinds.
    pub(super) fn new(kinds: (u32, u32), time: i64) -> Self {
        Self {
            said: 0,
            texts: 0,
            last_text: 0,
            kinds,
            time,
            depth: 0,
        }
    }

    /// Goes into an object or an array.
    pub(super) fn enter(&mut self) -> Result<(), Corrupt> {
        self.depth += 1;
        match self.depth > MAX_DEPTH {
            true => Err(Corrupt::TooMuch),
            false => Ok(()),
        }
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// The nodes of a record: told, or found out one by one.
pub(super) struct Tape<'a> {
    pub(super) told: &'a [Node],
    at: usize,
    pub(super) found: Vec<Node>,
    pub(super) leaves: Vec<Leaf>,
    /// Room for what is found out.
    pub(super) room: Room,
}

/// Values, and bytes of text, that may still be read out of a batch.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) nodes: usize,
    pub(super) text: usize,
}

impl Room {
    pub(super) fn take(&mut self, nodes: usize, text: usize) -> Result<(), Corrupt> {
        self.nodes = self.nodes.checked_sub(nodes).ok_or(Corrupt::TooMuch)?;
        self.text = self.text.checked_sub(text).ok_or(Corrupt::TooMuch)?;
        Ok(())
    }
}

impl<'a> Tape<'a> {
    pub(super) fn new(told: &'a [Node], room: Room) -> Self {
        Self {
            told,
            at: 0,
            found: Vec::new(),
            leaves: Vec::new(),
            room,
        }
    }

    pub(super) fn next(&mut self) -> Option<&'a Node> {
        let node = self.told.get(self.at);
        self.at += 1;
        node
    }

    /// Which node is next.
    pub(super) fn position(&self) -> usize {
        match self.told {
            [] => self.found.len(),
            _ => self.at,
        }
    }

    /// The nodes so far.
    pub(super) fn nodes(&self) -> &[Node] {
        match self.told {
            [] => &self.found,
            told => told,
        }
    }

    /// Keeps what was found out.
    pub(super) fn put(&mut self, node: Node) -> Result<(), Corrupt> {
        if self.told.is_empty() {
            self.room.take(1, node.text_len())?;
            self.found.push(node);
        }
        Ok(())
    }
}
