//! What is wrong with a policy: the file, the line, and what to write instead.

use std::path::PathBuf;

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}", file.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct PolicyError {
    /// The file at fault.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: Option<usize>,
    /// What is wrong and what to write instead.
    pub problem: String,
}
