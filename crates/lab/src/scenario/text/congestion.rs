//! [`Congestion`]: what governs a flow, by the names that texts and commands have for it.

use std::fmt;
use std::str::FromStr;

use towline_quic::Algorithm;

use crate::scenario::Flow;

/// The name of [`Congestion::Background`].
const BACKGROUND: &str = "background";

/// What governs the rate of a flow, as texts and commands name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// The connection's own controller.
    Algorithm(Algorithm),
    /// One LEDBAT++ for all flows of the scenario that have it.
    Background,
}

impl Congestion {
    /// Puts a flow under it.
    pub(super) fn govern(self, flow: &mut Flow) {
        match self {
            Self::Algorithm(algorithm) => {
                flow.transport.congestion = algorithm;
                flow.background = false;
            }
            Self::Background => flow.background = true,
        }
    }

    /// What governs a flow.
    pub fn of(flow: &Flow) -> Self {
        match flow.background {
            true => Self::Background,
            false => Self::Algorithm(flow.transport.congestion),
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(algorithm) => algorithm.fmt(f),
            Self::Background => f.write_str(BACKGROUND),
        }
    }
}

impl FromStr for Congestion {
    type Err = UnknownCongestion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == BACKGROUND => Ok(Self::Background),
            Ok(algorithm) => Ok(Self::Algorithm(algorithm)),
            // That one is about the rate, and lists no names.
            Err(error) if text.starts_with("fixed") => Err(UnknownCongestion(error.to_string())),
            Err(error) => Err(UnknownCongestion(format!("{error}, {BACKGROUND}"))),
        }
    }
}

/// Nothing that governs a flow has that name; says which names there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCongestion(String);

impl fmt::Display for UnknownCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownCongestion {}
