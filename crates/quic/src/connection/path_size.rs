//! What the system and routers say of datagrams that are too big for a path.
//!
//! Called by the endpoint. The search for the size itself is `recovery`'s; this tells whether a notice
//! is about a packet of ours, and sends again what got nowhere.

use std::net::SocketAddr;

use towline_recovery::TooBig;
use towline_wire::{PacketNumberSpace, Time, peek_dcid};

use super::parts::Connection;

impl Connection {
    /// The system refuses datagrams of `len` bytes on this path. If they were no probe, what is in
    /// flight may never have left: it is sent again in smaller ones, and says nothing of congestion.
    pub(crate) fn handle_datagram_too_big(&mut self, len: usize) {
        let path = self.paths.state_mut();
        let size = path.max_datagram_size();
        if path.on_datagram_refused(u16::try_from(len).unwrap_or(u16::MAX)) {
            self.send_again(&PacketNumberSpace::ALL, size);
        }
    }

    /// A router says that a packet to `remote`, whose first bytes are `quoted`, was too big, and that
    /// `mtu` bytes of UDP payload pass (RFC 9000 §14.2.1). Returns whether it is believed. It is if what
    /// is quoted is the header of a packet in flight on the path that data takes: the connection
    /// ID in use there, and behind our header protection the number of a packet larger than that.
    pub(crate) fn handle_too_big(
        &mut self,
        now: Time,
        remote: SocketAddr,
        mtu: u16,
        quoted: &[u8],
    ) -> bool {
        if !self.lifecycle.is_open() || remote != self.paths.remote() {
            return false;
        }
        let Some(packet_number) = self.number_of_quoted(quoted) else {
            return false;
        };
        let path = self.paths.state_mut();
        let size = path.max_datagram_size();
        let outcome = self.recovery.on_too_big(path, now, packet_number, mtu);
        if outcome == TooBig::SizeFell {
            self.send_again(&[PacketNumberSpace::Application], size);
        }
        outcome != TooBig::NotBelieved
    }

    /// The number of a 1-RTT packet that may be ours.
    fn number_of_quoted(&self, quoted: &[u8]) -> Option<u64> {
        let dcid = self.remote_cids.current();
        let is_short = quoted.first()? & 0x80 == 0;
        if !is_short || peek_dcid(quoted, dcid.len()).ok()? != dcid.as_slice() {
            return None;
        }
        let next = self
            .recovery
            .next_packet_number(PacketNumberSpace::Application);
        let pn_offset = 1 + dcid.len();
        self.sealer
            .protection
            .number_of_sealed(quoted, pn_offset, next)
    }

    /// The size of datagrams fell from `before`: what is in flight in `spaces` is sent again in smaller
    /// ones.
    fn send_again(&mut self, spaces: &[PacketNumberSpace], before: u16) {
        for space in spaces {
            let (recovery, path, mut owner) = self.split_for_delivery();
            recovery.abandon_space(path, *space, &mut owner);
        }
        self.note_datagram_size(before);
    }
}
