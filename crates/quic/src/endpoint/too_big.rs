//! Routers' notices that a datagram was too big (RFC 8899 §4.6): which connection's it was.

use std::net::SocketAddr;

use towline_wire::Time;

use super::shard::Endpoint;

impl Endpoint {
    /// A router says that a datagram to `remote` was too big for the next link: ICMP "fragmentation
    /// needed" or ICMPv6 "packet too big". `mtu` is what passes, in bytes of UDP payload; `quoted` is the
    /// begin of the UDP payload that was dropped. Returns whether the notice is believed.
    ///
    /// Anybody can send such a notice, so it is only a hint (RFC 8899 §4.6, RFC 9000 §14.2.1). It is
    /// believed if `quoted` has the connection ID that is used towards `remote`, and behind our header
    /// protection the number of a packet in flight that is larger than `mtu`. That needs 21 bytes
    /// beside the connection ID; routers that quote 8 bytes are not heard. Who has not seen
    /// the connection's packets has to guess both. Towards a peer without connection IDs only the
    /// number is left: of forged notices with the right addresses and ports up to one in 16 passes. Who
    /// has seen the packets can send what passes, and could drop them as well.
    ///
    /// What is believed lowers the size of packets to
    /// [`min_mtu`](crate::TransportConfig::min_mtu), never below it, and has `mtu` probed next; it
    /// never raises it. A notice of less than `min_mtu` changes nothing, nor does any without
    /// [`mtu_search`](crate::TransportConfig::mtu_search).
    pub fn handle_too_big(
        &mut self,
        now: Time,
        remote: SocketAddr,
        mtu: usize,
        quoted: &[u8],
    ) -> bool {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let senders = &self.large_senders;
        let whose = senders.to(remote).find_map(|handle| {
            let connection = &mut self.slots.get_mut(handle)?.connection;
            let believed = connection.handle_too_big(now, remote, mtu, quoted);
            believed.then(|| (handle, connection.aftermath(now)))
        });
        let Some((handle, aftermath)) = whose else {
            return false;
        };
        self.settle(now, handle, aftermath);
        true
    }
}
