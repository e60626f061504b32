//! The numbers a user sees: the same names here, in `--json` and in metrics.

use std::time::Duration;

use super::parts::Connection;

/// A snapshot of one connection.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Smoothed round-trip time (RFC 9002 §5.3); an estimate before the first sample. [`Visit`]
    /// shows it, the variation and the newest sample only once there was one.
    ///
    /// [`Visit`]: crate::stats::Visit
    pub smoothed_rtt: Duration,
    /// Its mean variation.
    pub rttvar: Duration,
    /// Smallest round trip seen; `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// Newest sample; zero before the first.
    pub latest_rtt: Duration,
    /// Probe timeout of the application space, without backoff (RFC 9002 §6.2.1).
    pub pto: Duration,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// Bytes of those.
    pub bytes_sent: u64,
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// QUIC packets received and authenticated.
    pub packets_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// UDP datagrams dropped because they came from another address than the peer's.
    pub datagrams_from_elsewhere: u64,
    /// Times that data took to another path: the peer or this end moved, or moved back.
    pub path_changes: u64,
    /// Paths that proved to lead to the peer (RFC 9000 §8.2), the first one not counted.
    pub paths_validated: u64,
    /// Paths on which nobody answered.
    pub paths_failed: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Bytes of those.
    pub bytes_lost: u64,
    /// Packets declared lost and acknowledged later.
    pub packets_spuriously_lost: u64,
    /// Stream bytes sent more than once.
    pub bytes_retransmitted: u64,
    /// `packets_lost` less the spurious ones, as a share of `packets_sent`.
    pub loss_ratio: f64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Bytes sent and neither acknowledged nor declared lost.
    pub bytes_in_flight: u64,
    /// Pacing rate, bytes a second.
    pub pacing_rate: Option<u64>,
    /// Newest delivery-rate sample, bytes a second.
    pub delivery_rate: Option<u64>,
    /// Times the window was reduced.
    pub congestion_events: u64,
    /// Consecutive probe timeouts at present.
    pub pto_count: u32,
    /// Probe timeouts that expired, ever.
    pub probe_timeouts: u64,
    /// Whether the path proved to carry ECN marks (RFC 9000 §13.4.2).
    pub ecn_capable: bool,
    /// Packets the peer reported as marked "congestion experienced".
    pub ce_marks: u64,
    /// UDP payload bytes of full-sized packets, as large as the path was found to carry.
    pub mtu: u16,
    /// Probes for larger packets that were sent (RFC 8899).
    pub mtu_probes_sent: u64,
    /// Those that were lost. They are not among `packets_lost`.
    pub mtu_probes_lost: u64,
    /// Times full-sized packets stopped arriving while smaller ones did.
    pub black_holes_detected: u64,
    /// Routers' notices that a packet was too big (ICMP) which were believed.
    pub too_big_believed: u64,
    /// Key updates by either side.
    pub key_updates: u64,
    /// Units of work that the peer's packets asked for: 200 for each packet, 20 for each frame, and
    /// one for each range of an ACK frame and each record looked at that the frame did not settle.
    pub work: u64,
    /// Packets dropped because they asked for too much of it.
    pub packets_overworked: u64,
    /// Packets that failed authentication.
    pub decryption_failures: u64,
    /// Received application datagrams dropped because they were not read in time.
    pub app_datagrams_dropped: u64,
    /// Application datagrams sent.
    pub app_datagrams_sent: u64,
    /// Of those, acknowledged by the peer's transport.
    pub app_datagrams_acked: u64,
    /// Of those, declared lost. One that is acknowledged later counts among both.
    pub app_datagrams_lost: u64,
    /// Application datagrams never sent: they waited for too long, or became too large for the path.
    pub app_datagrams_expired: u64,
}

crate::visit_fields! { Stats:
    Gauge smoothed_rtt: Seconds, "Smoothed round-trip time", once min_rtt;
    Gauge rttvar: Seconds, "Mean variation of the round-trip time", once min_rtt;
    Gauge min_rtt: Seconds, "Smallest round trip seen";
    Gauge latest_rtt: Seconds, "Newest sample of the round trip", once min_rtt;
    Gauge pto: Seconds, "Probe timeout, without backoff";
    Counter packets_sent: Count, "QUIC packets sent";
    Counter bytes_sent: Bytes, "Bytes of the packets sent";
    Counter datagrams_sent: Count, "UDP datagrams sent";
    Counter packets_received: Count, "QUIC packets received and authenticated";
    Counter bytes_received: Bytes, "UDP payload received";
    Counter datagrams_received: Count, "UDP datagrams received";
    Counter datagrams_from_elsewhere: Count, "UDP datagrams dropped because they came from another address than the peer's";
    Counter path_changes: Count, "Times that data took to another path";
    Counter paths_validated: Count, "Paths that proved to lead to the peer, the first one not counted";
    Counter paths_failed: Count, "Paths on which nobody answered";
    Counter packets_lost: Count, "Packets declared lost";
    Counter bytes_lost: Bytes, "Bytes of the packets declared lost";
    Counter packets_spuriously_lost: Count, "Packets declared lost and acknowledged later";
    Counter bytes_retransmitted: Bytes, "Stream bytes sent more than once";
    Gauge loss_ratio: Ratio, "Packets lost, less the spurious ones, as a share of those sent";
    Gauge cwnd: Bytes, "Congestion window";
    Gauge bytes_in_flight: Bytes, "Bytes neither acknowledged nor declared lost";
    Gauge pacing_rate: BytesPerSecond, "Pacing rate";
    Gauge delivery_rate: BytesPerSecond, "Newest sample of the delivery rate";
    Counter congestion_events: Count, "Times the window was reduced";
    Gauge pto_count: Count, "Consecutive probe timeouts at present";
    Counter probe_timeouts: Count, "Probe timeouts that expired";
    Gauge ecn_capable: Flag, "Whether the path proved to carry ECN marks";
    Counter ce_marks: Count, "Packets the peer reported as marked: congestion experienced";
    Gauge mtu: Bytes, "UDP payload of full-sized packets";
    Counter mtu_probes_sent: Count, "Probes for larger packets";
    Counter mtu_probes_lost: Count, "Probes for larger packets that were lost";
    Counter black_holes_detected: Count, "Times full-sized packets stopped arriving while smaller ones did";
    Counter too_big_believed: Count, "Routers' notices that a packet was too big, believed";
    Counter key_updates: Count, "Key updates by either side";
    Counter work: Count, "Units of work that the peer's packets asked for";
    Counter packets_overworked: Count, "Packets dropped because they asked for too much work";
    Counter decryption_failures: Count, "Packets that failed authentication";
    Counter app_datagrams_dropped: Count, "Application datagrams dropped because they were not read in time";
    Counter app_datagrams_sent: Count, "Application datagrams sent";
    Counter app_datagrams_acked: Count, "Application datagrams acknowledged by the peer's transport";
    Counter app_datagrams_lost: Count, "Application datagrams declared lost";
    Counter app_datagrams_expired: Count, "Application datagrams never sent: too old, or too large for the path by then";
}

impl Connection {
    /// The current numbers. Times and counters as of the last call that took a time.
    pub fn stats(&self) -> Stats {
        let r = self.recovery.stats(self.paths.state());
        let datagrams = self.datagrams.fates();
        let really_lost = r.packets_lost.saturating_sub(r.packets_spuriously_lost);
        Stats {
            smoothed_rtt: r.smoothed_rtt,
            rttvar: r.rttvar,
            min_rtt: r.min_rtt,
            latest_rtt: r.latest_rtt,
            pto: r.pto,
            packets_sent: r.packets_sent,
            bytes_sent: r.bytes_sent,
            datagrams_sent: self.sealer.datagrams_sent(),
            packets_received: self.received.packets,
            bytes_received: self.received.bytes,
            datagrams_received: self.received.datagrams,
            datagrams_from_elsewhere: self.received.from_elsewhere,
            path_changes: self.paths.counters.changes,
            paths_validated: self.paths.counters.validated,
            paths_failed: self.paths.counters.failed,
            packets_lost: r.packets_lost,
            bytes_lost: r.bytes_lost,
            packets_spuriously_lost: r.packets_spuriously_lost,
            bytes_retransmitted: self.streams.retransmitted(),
            loss_ratio: really_lost as f64 / r.packets_sent.max(1) as f64,
            cwnd: r.cwnd,
            bytes_in_flight: r.bytes_in_flight,
            pacing_rate: r.pacing_rate,
            delivery_rate: r.delivery_rate,
            congestion_events: r.congestion_events,
            pto_count: r.pto_count,
            probe_timeouts: r.probe_timeouts,
            ecn_capable: r.ecn_capable,
            ce_marks: r.ce_marks,
            mtu: r.mtu,
            mtu_probes_sent: r.mtu_probes_sent,
            mtu_probes_lost: r.mtu_probes_lost,
            black_holes_detected: r.black_holes_detected,
            too_big_believed: r.too_big_believed,
            key_updates: self.sealer.protection.updates(),
            work: self.received.work,
            packets_overworked: self.received.overworked,
            decryption_failures: self.sealer.protection.failed_opens(),
            app_datagrams_dropped: self.datagrams.dropped(),
            app_datagrams_sent: datagrams.sent,
            app_datagrams_acked: datagrams.acked,
            app_datagrams_lost: datagrams.lost,
            app_datagrams_expired: datagrams.expired,
        }
    }
}
