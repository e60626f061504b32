//! What `web perf` is asked for.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::commands::perf::TuneArgs;
use crate::commands::perf::control::MAX_STREAMS;
use crate::commands::perf::report::Threshold;
use crate::net::ConnectArgs;
use crate::units::{parse_positive_duration, parse_size};
use crate::url::WebUrl;

/// Most sessions; a server of ours takes 100 on a connection.
const MAX_SESSIONS: u8 = 64;
/// Flags of `web perf`.
#[derive(clap::Args)]
pub(crate) struct WebPerfArgs {
    /// https://HOST[:PORT]/[#sha256/PIN] of `towline serve --web`; its /upload, /download and /datagrams are measured
    #[arg(value_name = "URL")]
    pub(super) url: WebUrl,
    /// Which way data goes
    #[arg(long, value_enum, default_value_t = Direction::Upload, conflicts_with = "datagrams")]
    pub(super) direction: Direction,
    /// Seconds to measure
    #[arg(short = 't', long, value_name = "TIME", default_value = "10", value_parser = parse_positive_duration)]
    pub(super) time: Duration,
    /// Streams at once in each session, and each way
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, conflicts_with = "datagrams", value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_STREAMS)))]
    pub(super) parallel: u8,
    /// Sessions on one connection; with --direction both as many each way
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_SESSIONS)))]
    pub(super) sessions: u8,
    /// Datagrams there and back instead of streams: round trips and loss
    #[arg(long)]
    pub(super) datagrams: bool,
    /// Datagrams a second in each session
    #[arg(long, value_name = "N", default_value_t = 100, requires = "datagrams", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) rate: u32,
    /// Bytes of each datagram, at least 8
    #[arg(long, value_name = "SIZE", default_value = "200", requires = "datagrams", value_parser = parse_size)]
    pub(super) size: u64,
    /// Time between rows
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1", value_parser = parse_positive_duration)]
    pub(super) interval: Duration,
    /// Exit with code 8 if this holds at the end: rate<100Mbit (of the slower direction), rtt>20ms or loss>1%
    /// (repeatable)
    #[arg(long, value_name = "CONDITION")]
    pub(super) fail_if: Vec<Threshold>,
    #[command(flatten)]
    pub(super) tune: TuneArgs,
    #[command(flatten)]
    pub(super) network: ConnectArgs,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    Upload,
    Download,
    Both,
}
