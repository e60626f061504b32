//! What connections say of themselves before and after a datagram, and what must hold between:
//! the window (I3), probes that end (I2), round trips (RFC 9002 §5.3), objections (I13).
//!
//! Called by the world around each train sent and each datagram delivered.

use std::net::SocketAddr;
use std::time::Duration;

use towline_quic::{Connection, ConnectionHandle, Endpoint, Stats};
use towline_wire::Time;

use crate::violation::{Invariant, Violation};

/// Datagrams that may exceed the window: two probes, and one on entering recovery (RFC 9002 §7.3.2) or
/// an acknowledgement that holds a PING.
const WINDOW_EXCEPTIONS: u64 = 3;

/// The numbers of every open connection of an endpoint, at one time.
pub(super) struct Books(Vec<(ConnectionHandle, SocketAddr, bool, Stats)>);

impl Books {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let connections = endpoint
            .handles()
            .filter_map(|h| Some((h, endpoint.connection(h)?)));
        let books = connections.map(|(h, c)| (h, c.remote(), c.is_confirmed(), c.stats()));
        Self(books.collect())
    }

    /// I3: a train never lifts the bytes in flight above the window by more than probes may.
    pub(super) fn check_window(&self, now: Time, endpoint: &Endpoint) -> Result<(), Violation> {
        for (handle, _, _, before) in &self.0 {
            let Some(connection) = endpoint.connection(*handle) else {
                continue;
            };
            let Stats {
                bytes_in_flight,
                cwnd,
                mtu,
                ..
            } = connection.stats();
            let before = before.bytes_in_flight;
            let mtu = u64::from(mtu);
            let most = cwnd.max(before) + WINDOW_EXCEPTIONS * mtu;
            if bytes_in_flight > before && bytes_in_flight > most {
                let what = format!(
                    "{bytes_in_flight} bytes in flight after a train, {before} before, window {cwnd}"
                );
                return Err(Violation::new(Invariant::Congestion, now, what));
            }
            if cwnd < 2 * mtu {
                let what = format!("a window of {cwnd} bytes is less than two packets of {mtu}");
                return Err(Violation::new(Invariant::Congestion, now, what));
            }
        }
        Ok(())
    }

    /// What a delivered datagram may do to the recovery of a confirmed connection.
    pub(super) fn check_delivery(
        &self,
        now: Time,
        endpoint: &Endpoint,
        one_packet: bool,
    ) -> Result<(), Violation> {
        for (handle, remote, confirmed, before) in &self.0 {
            let after = endpoint.connection(*handle).filter(|c| !c.is_closed());
            // Another path has other books.
            let after = after.filter(|c| c.remote() == *remote);
            let Some(after) = after.filter(|_| *confirmed).map(Connection::stats) else {
                continue;
            };
            let broken = |what| Err(Violation::new(Invariant::Recovery, now, what));
            // What leaves flight without a loss was acknowledged (RFC 9002 §6.2.1).
            let lost = |stats: &Stats| stats.packets_lost + stats.mtu_probes_lost;
            let acked =
                after.bytes_in_flight < before.bytes_in_flight && lost(&after) == lost(before);
            if acked && after.pto_count > 0 {
                return broken(format!(
                    "{} probe timeouts still count after an acknowledgement",
                    after.pto_count
                ));
            }
            if one_packet && before.min_rtt.is_some() && !is_one_sample(before, &after) {
                return broken(format!(
                    "no sample takes smoothed_rtt and rttvar from {:?} and {:?} to {:?} and {:?}",
                    before.smoothed_rtt, before.rttvar, after.smoothed_rtt, after.rttvar
                ));
            }
        }
        Ok(())
    }
}

/// Whether one sample, or none, explains how the estimates moved (RFC 9002 A.7):
/// rttvar = 3/4 rttvar + 1/4 |smoothed_rtt - sample|, then
/// smoothed_rtt = 7/8 smoothed_rtt + 1/8 sample.
fn is_one_sample(before: &Stats, after: &Stats) -> bool {
    let nanos = |d: Duration| d.as_nanos() as i128;
    let [smoothed, rttvar] = [nanos(before.smoothed_rtt), nanos(before.rttvar)];
    let [new_smoothed, new_rttvar] = [nanos(after.smoothed_rtt), nanos(after.rttvar)];
    if [smoothed, rttvar] == [new_smoothed, new_rttvar] {
        return true;
    }
    let sample = 8 * new_smoothed - 7 * smoothed;
    let expected = (3 * rttvar + (smoothed - sample).abs()) / 4;
    // Each division may have dropped up to seven eighths of a nanosecond.
    (new_rttvar - expected).abs() <= 3
}

/// I13: who acknowledges a packet that was never sent is not spoken to any longer.
pub(super) fn check_objection(
    now: Time,
    endpoint: &Endpoint,
    peer: SocketAddr,
) -> Result<(), Violation> {
    let mut connections = endpoint.handles().filter_map(|h| endpoint.connection(h));
    if connections.any(|c| c.remote() == peer && !c.is_closed()) {
        let what = "a packet that was never sent was acknowledged, and nobody objected";
        return Err(Violation::new(Invariant::Honesty, now, what));
    }
    Ok(())
}
