//! [`crash_point`]: where a debug build can be made to end, as by a kill.

/// Ends the process at once where the environment variable `TOWLINE_CRASH_AT` names this point, as `NAME` or, the
/// so-manieth time that it is passed, `NAME:COUNT`. In release builds it does nothing.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub fn crash_point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ASKED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let asked = ASKED.get_or_init(|| {
        let text = std::env::var("TOWLINE_CRASH_AT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), count.parse().unwrap_or(1)))
    });
    if let Some((point, count)) = asked
        && point == name
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        std::process::abort();
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[doc(hidden)]
pub fn crash_point(_: &str) {}
