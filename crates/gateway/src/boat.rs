//! [`feed`]: from a source into an uplink.

use std::time::Duration;

use towline::link::{Class, PathPatterns, Uplink};

use crate::{Source, SourceError};

/// How often it is told how the source is.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Gives the uplink what the source has, to its end; slows the source down while the store is slow. Records with a
/// path that `alarms` fits go before all others. `tell` is shown the source once a second, and at its end.
///
/// # Errors
/// Where the source fails, which only one with a reader does.
pub async fn feed(
    mut source: Source,
    uplink: &Uplink,
    alarms: &PathPatterns,
    mut tell: impl FnMut(&Source),
) -> Result<(), SourceError> {
    let mut ticks = tokio::time::interval(TOLD_EVERY);
    loop {
        let record = tokio::select! {
            record = source.next() => record,
            _ = ticks.tick() => {
                tell(&source);
                continue;
            }
        };
        let Some(record) = record.inspect_err(|_| tell(&source))? else {
            break;
        };
        let class = match alarms.fit(&record) {
            true => Class::Alarm,
            false => Class::Telemetry,
        };
        if !uplink.send(record, class).await {
            break;
        }
    }
    tell(&source);
    Ok(())
}
