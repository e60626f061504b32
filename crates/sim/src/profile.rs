//! Named networks: the six of the edge-link project that Towline's telemetry is measured on.
//! The figure in a name is the round-trip time, so each direction takes half of it.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::{LinkConfig, LinkConfigError, LossModel};

/// A named network. Use the same configuration for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// A perfect link.
    Local,
    /// 1 ms round trip, 1 Gbit/s.
    Lan,
    /// 30 ms round trip, 20 Mbit/s, 0.5 % loss.
    Lte,
    /// 100 ms round trip, 2 Mbit/s, 2 % loss.
    ThreeG,
    /// 600 ms round trip (geostationary), 10 Mbit/s, 1 % loss.
    Satellite,
    /// 200 ms round trip, 1 Mbit/s, 10 % loss.
    PoorCellular,
}

impl Profile {
    /// All of them, best network first.
    pub const ALL: [Self; 6] = [
        Self::Local,
        Self::Lan,
        Self::Lte,
        Self::ThreeG,
        Self::Satellite,
        Self::PoorCellular,
    ];

    /// The name used in text: `local lan lte 3g satellite poor-cellular`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Lan => "lan",
            Self::Lte => "lte",
            Self::ThreeG => "3g",
            Self::Satellite => "satellite",
            Self::PoorCellular => "poor-cellular",
        }
    }

    /// The link of one direction.
    pub fn link(self) -> LinkConfig {
        let millis = Duration::from_millis;
        let of = |rate, round_trip: Duration, jitter, loss| LinkConfig {
            rate: Some(rate),
            delay: round_trip / 2,
            jitter,
            loss: if loss > 0.0 {
                LossModel::Bernoulli(loss)
            } else {
                LossModel::None
            },
            ..LinkConfig::default()
        };
        match self {
            Self::Local => LinkConfig::default(),
            Self::Lan => of(1_000_000_000, millis(1), Duration::ZERO, 0.0),
            Self::Lte => of(20_000_000, millis(30), millis(5), 0.005),
            Self::ThreeG => of(2_000_000, millis(100), millis(15), 0.02),
            Self::Satellite => of(10_000_000, millis(600), millis(5), 0.01),
            Self::PoorCellular => of(1_000_000, millis(200), millis(30), 0.1),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = LinkConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                LinkConfigError::new(
                    text,
                    format!("is no name=value and no named network ({names})"),
                )
            })
    }
}
