//! Sessions that are measured, and how what works in them fails.

use std::time::Duration;

use tokio::task::JoinSet;
use towline::webtransport::Session;

use crate::exit::{Exit, Failure};
use crate::failures::session_failure;

/// How long a session or a stream may wait until the server permits it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server's last word may take.
pub(super) const RESULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sessions of a path, and how long the last of them took.
pub(super) struct Sessions {
    pub(super) open: Vec<Session>,
    pub(super) path: String,
    pub(super) took: Duration,
}

/// Waits for what the server may not permit.
pub(super) async fn permitted<T>(
    what: &str,
    opening: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let opened = tokio::time::timeout(OPEN_TIMEOUT, opening).await;
    opened.unwrap_or_else(|_| {
        let message = format!("the server permits no more {what} at once");
        Err(Failure::new(Exit::Other, message).next("ask for fewer with --parallel or --sessions"))
    })
}

/// What a task of a measurement failed with; `None` where none did.
pub(super) fn failure_of(
    ended: Result<Result<(), Failure>, tokio::task::JoinError>,
) -> Option<Failure> {
    match ended {
        Ok(ended) => ended.err(),
        Err(error) => Some(Failure::new(Exit::Other, error.to_string())),
    }
}

/// Waits until a task fails.
pub(super) async fn first_failure(workers: &mut JoinSet<Result<(), Failure>>) -> Failure {
    while let Some(ended) = workers.join_next().await {
        if let Some(failure) = failure_of(ended) {
            return failure;
        }
    }
    std::future::pending().await
}

/// Why something of a session failed.
pub(super) fn broken(session: &Session, what: &str) -> Failure {
    match session.close_reason() {
        Some(reason) => session_failure(&reason),
        None => Failure::new(Exit::Protocol, what),
    }
}
