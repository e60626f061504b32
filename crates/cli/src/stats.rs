//! A connection's statistics as records: in `--json` results, and from a measurement's server.

use serde::{Deserialize, Serialize};
use towline::stats::Stats;

/// A connection's statistics under their names in Rust; times in seconds, sizes in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StatsRecord {
    pub(crate) smoothed_rtt: f64,
    pub(crate) rttvar: f64,
    pub(crate) min_rtt: Option<f64>,
    pub(crate) latest_rtt: f64,
    pub(crate) pto: f64,
    pub(crate) packets_sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) bytes_received: u64,
    pub(crate) packets_lost: u64,
    pub(crate) bytes_lost: u64,
    pub(crate) packets_spuriously_lost: u64,
    pub(crate) bytes_retransmitted: u64,
    pub(crate) loss_ratio: f64,
    pub(crate) cwnd: u64,
    pub(crate) bytes_in_flight: u64,
    pub(crate) pacing_rate: Option<u64>,
    pub(crate) delivery_rate: Option<u64>,
    pub(crate) congestion_events: u64,
    pub(crate) ecn_capable: bool,
    pub(crate) ce_marks: u64,
    pub(crate) mtu: u16,
    pub(crate) key_updates: u64,
}

impl From<&Stats> for StatsRecord {
    fn from(stats: &Stats) -> Self {
        Self {
            smoothed_rtt: stats.smoothed_rtt.as_secs_f64(),
            rttvar: stats.rttvar.as_secs_f64(),
            min_rtt: stats.min_rtt.map(|rtt| rtt.as_secs_f64()),
            latest_rtt: stats.latest_rtt.as_secs_f64(),
            pto: stats.pto.as_secs_f64(),
            packets_sent: stats.packets_sent,
            bytes_sent: stats.bytes_sent,
            packets_received: stats.packets_received,
            bytes_received: stats.bytes_received,
            packets_lost: stats.packets_lost,
            bytes_lost: stats.bytes_lost,
            packets_spuriously_lost: stats.packets_spuriously_lost,
            bytes_retransmitted: stats.bytes_retransmitted,
            loss_ratio: stats.loss_ratio,
            cwnd: stats.cwnd,
            bytes_in_flight: stats.bytes_in_flight,
            pacing_rate: stats.pacing_rate,
            delivery_rate: stats.delivery_rate,
            congestion_events: stats.congestion_events,
            ecn_capable: stats.ecn_capable,
            ce_marks: stats.ce_marks,
            mtu: stats.mtu,
            key_updates: stats.key_updates,
        }
    }
}
