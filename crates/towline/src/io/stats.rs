//! Counters of one shard's socket, kept by the shard and read by anyone.

/// What a socket did, and what went wrong with it, since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketStats {
    /// System calls that sent something.
    pub calls_sent: u64,
    /// Trains those calls carried; more than calls where one served several peers.
    pub trains_sent: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Times the socket buffer was full.
    pub send_blocked: u64,
    /// Times the system had no buffers (ENOBUFS, ENOMEM).
    pub no_buffers: u64,
    /// Datagrams too big for the path (EMSGSIZE), dropped.
    pub too_big: u64,
    /// Sends refused for another reason (unreachable, filtered, …), dropped.
    pub send_errors: u64,
    /// Datagrams that the system did not take, whatever the reason; recovered as lost.
    pub datagrams_dropped: u64,
    /// System calls that received something.
    pub calls_received: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Receive errors that concern no connection, such as an ICMP refusal of an earlier send.
    pub receive_errors: u64,
    /// Routers' notices that a datagram was too big (ICMP), believed or not.
    pub too_big_told: u64,
    /// Datagrams that came to this shard's socket and were handed to the shard they belong to.
    pub datagrams_handed_over: u64,
    /// Datagrams for another shard that it had no room for, dropped.
    pub hand_over_drops: u64,
    /// Turns that ended on their budget and not on an empty socket.
    pub budget_ends: u64,
}

towline_quic::visit_fields! { SocketStats:
    Counter calls_sent: Count, "System calls that sent something";
    Counter trains_sent: Count, "Trains of datagrams sent";
    Counter datagrams_sent: Count, "Datagrams sent";
    Counter bytes_sent: Bytes, "UDP payload sent";
    Counter send_blocked: Count, "Times the socket buffer was full";
    Counter no_buffers: Count, "Times the system had no buffers";
    Counter too_big: Count, "Datagrams too big for the path, dropped";
    Counter send_errors: Count, "Sends refused for another reason, dropped";
    Counter datagrams_dropped: Count, "Datagrams that the system did not take";
    Counter calls_received: Count, "System calls that received something";
    Counter datagrams_received: Count, "Datagrams received";
    Counter bytes_received: Bytes, "UDP payload received";
    Counter receive_errors: Count, "Receive errors that concern no connection";
    Counter too_big_told: Count, "Routers' notices that a datagram was too big";
    Counter datagrams_handed_over: Count, "Datagrams handed to the shard they belong to";
    Counter hand_over_drops: Count, "Datagrams for another shard that it had no room for, dropped";
    Counter budget_ends: Count, "Turns that ended on their budget and not on an empty socket";
}

impl std::ops::AddAssign for SocketStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            calls_sent,
            trains_sent,
            datagrams_sent,
            bytes_sent,
            send_blocked,
            no_buffers,
            too_big,
            send_errors,
            datagrams_dropped,
            calls_received,
            datagrams_received,
            bytes_received,
            receive_errors,
            too_big_told,
            datagrams_handed_over,
            hand_over_drops,
            budget_ends,
        } = other;
        self.calls_sent += calls_sent;
        self.trains_sent += trains_sent;
        self.datagrams_sent += datagrams_sent;
        self.bytes_sent += bytes_sent;
        self.send_blocked += send_blocked;
        self.no_buffers += no_buffers;
        self.too_big += too_big;
        self.send_errors += send_errors;
        self.datagrams_dropped += datagrams_dropped;
        self.calls_received += calls_received;
        self.datagrams_received += datagrams_received;
        self.bytes_received += bytes_received;
        self.receive_errors += receive_errors;
        self.too_big_told += too_big_told;
        self.datagrams_handed_over += datagrams_handed_over;
        self.hand_over_drops += hand_over_drops;
        self.budget_ends += budget_ends;
    }
}
