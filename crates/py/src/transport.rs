//! [`Transport`]: the package's `TransportConfig`.

use std::num::NonZeroU64;
use std::time::Duration;

use pyo3::prelude::*;
use towline::config::TransportConfig;

use crate::errors::Failure;

/// The attributes of a `TransportConfig` of Python's: times in seconds, sizes in bytes.
#[derive(FromPyObject)]
pub(crate) struct Transport {
    idle_timeout: f64,
    keep_alive: Option<f64>,
    handshake_timeout: f64,
    congestion: String,
    rate_limit: Option<u64>,
    pacing: bool,
    ecn: bool,
    initial_rtt: f64,
    initial_mtu: u16,
    min_mtu: u16,
    max_mtu: Option<u16>,
    mtu_search: bool,
    max_bidirectional_streams: u64,
    max_unidirectional_streams: u64,
    stream_receive_window: u64,
    max_stream_receive_window: u64,
    receive_window: u64,
    max_receive_window: u64,
    stream_send_buffer: u64,
    send_buffer: u64,
    max_datagram_size: Option<u16>,
    datagram_receive_buffer: usize,
    datagram_send_buffer: usize,
    max_ack_delay: f64,
    packets_per_ack: u32,
    migration: bool,
}

impl Transport {
    /// As the engine has it.
    ///
    /// # Errors
    /// Names the setting that cannot be.
    pub(crate) fn config(&self) -> Result<TransportConfig, Failure> {
        let congestion = self.congestion.parse();
        let congestion = congestion.map_err(|error| Failure::value("congestion", error))?;
        let keep_alive = match self.keep_alive {
            Some(interval) => Some(seconds("keep_alive", interval)?),
            None => None,
        };
        let config = TransportConfig::default()
            .max_idle_timeout(seconds("idle_timeout", self.idle_timeout)?)
            .keep_alive_interval(keep_alive)
            .handshake_timeout(seconds("handshake_timeout", self.handshake_timeout)?)
            .congestion(congestion)
            .rate_limit(self.rate_limit.and_then(NonZeroU64::new))
            .pacing(self.pacing)
            .ecn(self.ecn)
            .initial_rtt(seconds("initial_rtt", self.initial_rtt)?)
            .initial_mtu(self.initial_mtu)
            .min_mtu(self.min_mtu)
            .max_mtu(self.max_mtu)
            .mtu_search(self.mtu_search)
            .max_concurrent_bidi_streams(self.max_bidirectional_streams)
            .max_concurrent_uni_streams(self.max_unidirectional_streams)
            .stream_receive_window(self.stream_receive_window)
            .max_stream_receive_window(self.max_stream_receive_window)
            .receive_window(self.receive_window)
            .max_receive_window(self.max_receive_window)
            .stream_send_buffer(self.stream_send_buffer)
            .send_buffer(self.send_buffer)
            .max_datagram_frame_size(self.max_datagram_size)
            .datagram_receive_buffer(self.datagram_receive_buffer)
            .datagram_send_buffer(self.datagram_send_buffer)
            .max_ack_delay(seconds("max_ack_delay", self.max_ack_delay)?)
            .packets_per_ack(self.packets_per_ack)
            .migration(self.migration);
        config.validate().map_err(|error| {
            let setting = match error.setting {
                "max_idle_timeout" => "idle_timeout",
                other => other,
            };
            let (value, least, most) = (error.value, error.least, error.most);
            let words = format!("{value} cannot be; it can be {least} to {most}");
            Failure::value(setting, words)
        })?;
        Ok(config)
    }
}

fn seconds(setting: &str, seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds).map_err(|error| Failure::value(setting, error))
}

/// Refuses settings that make no sense.
#[pyfunction]
pub(crate) fn check_transport(py: Python<'_>, config: Transport) -> PyResult<()> {
    let checked = config.config();
    checked
        .map(drop)
        .map_err(|failure: Failure| failure.raise(py))
}
