//! [`Load`]: what is measured.

use std::time::Duration;

use tokio::time::Instant;

use super::datagrams::Datagrams;
use super::streams::Streams;
use crate::exit::Failure;
use crate::printer::Printer;

/// What is measured, from its start on.
pub(super) enum Load {
    Streams(Streams),
    Datagrams(Datagrams),
}

impl Load {
    /// Waits for what ends it before its time.
    pub(super) async fn failed(&mut self) -> Failure {
        match self {
            Self::Streams(streams) => streams.failed().await,
            Self::Datagrams(datagrams) => datagrams.failed().await,
        }
    }

    pub(super) fn row(&mut self, now: Duration, printer: Printer) {
        match self {
            Self::Streams(streams) => streams.row(now, printer),
            Self::Datagrams(datagrams) => datagrams.row(now, printer),
        }
    }

    /// Ends it, and says how long it took in all.
    pub(super) async fn end(&mut self, begun: Instant) -> Result<Duration, Failure> {
        match self {
            Self::Streams(streams) => streams.end(begun).await,
            Self::Datagrams(datagrams) => datagrams.end(begun).await,
        }
    }
}
