//! The one error of a link's settings: which of them is impossible or unreadable, and why.
//!
//! Made by each setting's own check and by the reader of the text form; shown to the user as it is.

use core::fmt;

/// A link setting that is impossible or that nobody can read. The user's mistake; nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfigError {
    item: String,
    problem: String,
}

impl LinkConfigError {
    pub(crate) fn new(item: &str, problem: impl Into<String>) -> Self {
        Self {
            item: item.to_owned(),
            problem: problem.into(),
        }
    }

    /// The setting at fault: as the user wrote it when it came from text, else the field's name in text.
    pub fn item(&self) -> &str {
        &self.item
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for LinkConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link setting `{}`: {}", self.item, self.problem)
    }
}

impl std::error::Error for LinkConfigError {}
