//! Priorities (RFC 9218): what a client wishes, and what the transport is told.

use std::collections::BTreeMap;

use towline_wire::StreamId;

#[cfg(test)]
mod tests;

/// Cap: priorities of requests that have not arrived yet.
pub(crate) const MAX_EARLY_PRIORITIES: usize = 64;

/// How urgent a response is, and whether it is of use in parts (RFC 9218 §4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// Whether parts of it are of use before the whole.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// The value of a Priority field. What is not understood counts as not said (RFC 9218 §4, §5).
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|byte| *byte == b',') {
            let member = member.trim_ascii();
            let end = member.iter().position(|byte| *byte == b';');
            let member = &member[..end.unwrap_or(member.len())];
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }

    /// The value of a Priority field that says this.
    pub fn emit(self) -> String {
        match self.incremental {
            true => format!("u={}, i", self.urgency.min(7)),
            false => format!("u={}", self.urgency.min(7)),
        }
    }

    /// What the transport is told: 0 for a request that said nothing, more for a more urgent one.
    pub(crate) fn for_transport(self) -> i64 {
        i64::from(Self::default().urgency) - i64::from(self.urgency)
    }
}

/// Wishes that came before their requests (RFC 9218 §7).
#[derive(Default, Debug)]
pub(crate) struct EarlyPriorities(BTreeMap<StreamId, Priority>);

impl EarlyPriorities {
    /// Keeps one, while there is room.
    pub(crate) fn keep(&mut self, id: StreamId, priority: Priority) {
        if self.0.len() < MAX_EARLY_PRIORITIES || self.0.contains_key(&id) {
            self.0.insert(id, priority);
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn take(&mut self, id: StreamId) -> Option<Priority> {
        self.0.remove(&id)
    }
}
