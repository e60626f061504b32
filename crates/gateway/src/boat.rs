//! [`feed`]: from a source into an uplink.

use std::time::Duration;

use tokio::time::Instant;
use towline::link::{Class, PathPatterns, Uplink};
use towline_link::Reducer;

use crate::{Source, SourceError};

/// How often it is told how the source is.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Gives the uplink what the source has, to its end; slows the source down while the store is slow. Records with a
/// path that `alarms` fits go before all others, whole; others go as far as `reducer` leaves something. `tell` is shown the
/// source, and what was left out, once a second and at its end.
///
/// # Errors
/// Where the source fails, which only one with a reader does.
pub async fn feed(
    mut source: Source,
    uplink: &Uplink,
    alarms: &PathPatterns,
    mut reducer: Reducer,
    mut tell: impl FnMut(&Source, &Reducer),
) -> Result<(), SourceError> {
    let origin = Instant::now();
    let mut ticks = tokio::time::interval(TOLD_EVERY);
    loop {
        let record = tokio::select! {
            record = source.next() => record,
            _ = ticks.tick() => {
                tell(&source, &reducer);
                continue;
            }
        };
        let Some(record) = record.inspect_err(|_| tell(&source, &reducer))? else {
            break;
        };
        let (record, class) = match alarms.fit(&record) {
            true => (Some(record), Class::Alarm),
            false => (reducer.reduce(origin.elapsed(), record), Class::Telemetry),
        };
        if let Some(record) = record
            && !uplink.send(record, class).await
        {
            break;
        }
    }
    tell(&source, &reducer);
    Ok(())
}
