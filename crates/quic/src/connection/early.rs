//! Packets that arrived before their keys (RFC 9001 §5.7): a small queue nobody has authenticated.
//!
//! Owned by the handshake, filled and emptied by `input`. Anyone can fill it, so it is bounded in
//! packets and in bytes; the first to come are kept.

use towline_wire::PacketNumberSpace;

use super::component::Receipt;

/// Cap: packets kept until their keys arrive.
pub(crate) const MAX_EARLY_PACKETS: usize = 10;

/// Cap: bytes of those packets together.
pub(crate) const MAX_EARLY_BYTES: usize = 32_768;

/// A packet that arrived before its keys.
pub(crate) struct EarlyPacket {
    pub(crate) space: PacketNumberSpace,
    pub(crate) bytes: Vec<u8>,
    pub(crate) receipt: Receipt,
}

#[derive(Default)]
pub(crate) struct EarlyPackets {
    packets: Vec<EarlyPacket>,
}

impl EarlyPackets {
    /// Keeps a packet if there is room, and returns whether there was.
    /// RFC 9001 §4.1.4.
    pub(crate) fn keep(
        &mut self,
        space: PacketNumberSpace,
        packet: &[u8],
        receipt: Receipt,
    ) -> bool {
        let held: usize = self.packets.iter().map(|p| p.bytes.len()).sum();
        let fits = self.packets.len() < MAX_EARLY_PACKETS && held + packet.len() <= MAX_EARLY_BYTES;
        if fits {
            self.packets.push(EarlyPacket {
                space,
                bytes: packet.to_vec(),
                receipt,
            });
        }
        fits
    }

    /// The packets of `spaces`, whose keys are there; the others stay where they are.
    pub(crate) fn take(&mut self, spaces: &[PacketNumberSpace]) -> Vec<EarlyPacket> {
        let taken = self
            .packets
            .extract_if(.., |early| spaces.contains(&early.space))
            .collect();
        if self.packets.is_empty() {
            self.packets = Vec::new();
        }
        taken
    }

    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        let bytes: usize = self.packets.iter().map(|p| p.bytes.capacity()).sum();
        bytes + self.packets.capacity() * size_of::<EarlyPacket>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use towline_wire::Time;

    use super::*;

    #[test]
    fn early_packets_are_bounded_in_bytes_too() {
        let mut early = EarlyPackets::default();
        let receipt = Receipt {
            at: Time::ZERO,
            ecn: None,
        };
        for number in 0..MAX_EARLY_PACKETS {
            let kept = early.keep(PacketNumberSpace::Handshake, &[0; 20_000], receipt);
            assert_eq!(kept, number == 0);
        }
        assert_eq!(early.packets.len(), 1);
        let kept = early.keep(
            PacketNumberSpace::Application,
            &[0; MAX_EARLY_BYTES - 20_000],
            receipt,
        );
        assert!(kept);
        assert_eq!(early.take(&[PacketNumberSpace::Handshake]).len(), 1);
        assert!(!early.is_empty());
    }
}
