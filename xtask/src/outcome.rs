//! What every command returns.

/// The error is a sentence for the person at the terminal.
pub(crate) type Outcome<T = ()> = Result<T, String>;
