//! A setting that cannot be, and what it can be.

use std::ops::RangeInclusive;

/// A transport setting with which no connection can work. The application's mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transport setting `{setting}` is {value}; it can be {least} to {most}")]
#[non_exhaustive]
pub struct InvalidTransport {
    /// Its name in [`TransportConfig`](crate::TransportConfig).
    pub setting: &'static str,
    /// What it was set to, with its unit.
    pub value: String,
    /// The least it can be.
    pub least: String,
    /// The most it can be.
    pub most: String,
}

impl InvalidTransport {
    /// Refuses a value that is not within what is possible; `text` prints one.
    pub(super) fn check<T: Copy + PartialOrd>(
        setting: &'static str,
        value: T,
        possible: RangeInclusive<T>,
        text: impl Fn(T) -> String,
    ) -> Result<(), Self> {
        if possible.contains(&value) {
            return Ok(());
        }
        Err(Self {
            setting,
            value: text(value),
            least: text(*possible.start()),
            most: text(*possible.end()),
        })
    }
}
