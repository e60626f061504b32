//! [`RunError`]: why a scenario cannot be played.

use std::fmt;

use towline_sim::LinkConfigError;

use super::MAX_FLOWS;

/// A scenario that cannot be played. The mistake of whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// A link's settings are impossible.
    Link(LinkConfigError),
    /// More than [`MAX_FLOWS`], or none.
    Flows(usize),
    /// A flow cannot begin.
    Flow {
        /// Its name.
        name: String,
        /// Why.
        problem: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(error) => error.fmt(f),
            Self::Flows(count) => {
                write!(f, "{count} flows; a scenario has 1 to {MAX_FLOWS}")
            }
            Self::Flow { name, problem } => write!(f, "flow `{name}`: {problem}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<LinkConfigError> for RunError {
    fn from(error: LinkConfigError) -> Self {
        Self::Link(error)
    }
}
