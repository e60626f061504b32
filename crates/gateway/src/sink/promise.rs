//! What a sink promises, and how it says that it could not keep it.

/// What a sink promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It shows the newest state: [`Sink::deliver`](crate::Sink::deliver). What newer records replace may be left out.
    Live,
    /// It keeps every record: [`Sink::open`](crate::Sink::open), then [`Sink::write`](crate::Sink::write).
    Log,
}

/// Why a sink did not take records, whose fault that is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SinkError {
    what: String,
    is_permanent: bool,
    entry: Option<u64>,
}

impl SinkError {
    /// It may pass by itself.
    pub(crate) fn passing(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_permanent: false,
            entry: None,
        }
    }

    /// Somebody has to do something.
    pub(crate) fn permanent(what: impl Into<String>) -> Self {
        Self {
            is_permanent: true,
            ..Self::passing(what)
        }
    }

    /// The sink will never take this one.
    pub(crate) fn of_entry(seq: u64, what: impl Into<String>) -> Self {
        Self {
            entry: Some(seq),
            ..Self::permanent(what)
        }
    }

    /// Whether trying again is in vain until a person has done what the text says. Otherwise write the same entries
    /// again after a wait ([`Backoff`](crate::Backoff)).
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }

    /// The entry that this sink can never take, where it is one entry's fault; the others go without it.
    #[must_use]
    pub fn entry(&self) -> Option<u64> {
        self.entry
    }
}
