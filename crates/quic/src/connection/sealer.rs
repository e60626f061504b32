//! What turns packets that were built into datagrams: keys, the frames noted on the way, a count.
//!
//! Called by `output`, which builds packets in the caller's buffer, and by whoever opens packets,
//! changes keys or asks for them. What is in a frame is its component's, what became of a packet
//! `recovery`'s, which takes over the list of its frames when it is sent.

use towline_wire::PacketNumberSpace;

use super::assemble::PacketBuilder;
use super::component::SentFrame;
use super::protect::Protection;

pub(crate) struct Sealer {
    pub(crate) protection: Protection,
    /// Frames of the packets being built, one list for each space; reused.
    frames: [Vec<SentFrame>; 3],
    datagrams_sent: u64,
}

impl Sealer {
    pub(crate) fn new(protection: Protection) -> Self {
        Self {
            protection,
            frames: Default::default(),
            datagrams_sent: 0,
        }
    }

    /// An empty list for the frames of a packet that is begun; [`Self::note_frames`] takes it back.
    pub(crate) fn begin_frames(&mut self, space: PacketNumberSpace) -> Vec<SentFrame> {
        let mut frames = std::mem::take(&mut self.frames[space.index()]);
        frames.clear();
        frames
    }

    /// The frames of the packet of `space` that is built.
    pub(crate) fn note_frames(&mut self, space: PacketNumberSpace, frames: Vec<SentFrame>) {
        self.frames[space.index()] = frames;
    }

    /// The frames of a packet that is sealed, for recovery to take.
    pub(crate) fn frames(&mut self, space: PacketNumberSpace) -> &mut Vec<SentFrame> {
        &mut self.frames[space.index()]
    }

    /// Seals a packet in place. An error is fatal: keys are missing, or the AEAD refuses.
    pub(crate) fn seal(
        &mut self,
        packet: &PacketBuilder,
        datagram: &mut [u8],
    ) -> Result<(), &'static str> {
        packet.seal(datagram, &mut self.protection)
    }

    /// A train of so many datagrams is ready to be sent.
    pub(crate) fn on_train(&mut self, segments: usize) {
        self.datagrams_sent += segments as u64;
    }

    pub(crate) fn datagrams_sent(&self) -> u64 {
        self.datagrams_sent
    }

    /// Gives back unused memory.
    pub(crate) fn trim(&mut self) {
        self.frames = Default::default();
        self.protection.trim();
    }
}
