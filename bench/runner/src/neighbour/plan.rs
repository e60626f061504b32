//! What is run: flows, cases, and the bottleneck they meet at.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Seconds of a run that counts.
pub(crate) const SECONDS: u32 = 60;

/// Most flows of one case.
const MAX_FLOWS: usize = 4;

/// Whose transport a sender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// `towline perf`.
    Towline,
    /// A TCP socket of this kernel.
    Linux,
}

/// One sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) stack: Stack,
    /// The congestion controller by the name its stack gives it.
    pub(crate) controller: String,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stack = match self.stack {
            Stack::Towline => "towline",
            Stack::Linux => "linux",
        };
        write!(f, "{stack}-{}", self.controller)
    }
}

impl FromStr for Flow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (stack, controller) = match text.split_once('-') {
            Some(("towline", controller)) => (Stack::Towline, controller),
            Some(("linux", controller)) => (Stack::Linux, controller),
            _ => {
                return Err(format!(
                    "`{text}` is no flow; write towline-NAME or linux-NAME"
                ));
            }
        };
        if controller.is_empty() {
            return Err(format!("`{text}` names no congestion controller"));
        }
        Ok(Self {
            stack,
            controller: controller.to_owned(),
        })
    }
}

/// Flows that start together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case(pub(crate) Vec<Flow>);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, flow) in self.0.iter().enumerate() {
            let plus = if index > 0 { "+" } else { "" };
            write!(f, "{plus}{flow}")?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let flows: Vec<Flow> = text.split('+').map(str::parse).collect::<Result<_, _>>()?;
        if flows.len() > MAX_FLOWS {
            return Err(format!("`{text}` has more than {MAX_FLOWS} flows"));
        }
        Ok(Self(flows))
    }
}

/// Each alone, ours beside theirs, and theirs beside theirs to know what is usual.
pub(crate) fn cases() -> Vec<Case> {
    [
        "towline-cubic",
        "towline-bbr",
        "linux-cubic",
        "linux-bbr",
        "towline-cubic+linux-cubic",
        "towline-bbr+linux-cubic",
        "towline-cubic+linux-bbr",
        "towline-bbr+linux-bbr",
        "linux-cubic+linux-cubic",
        "linux-bbr+linux-cubic",
    ]
    .iter()
    .filter_map(|case| case.parse().ok())
    .collect()
}

/// The bottleneck and how long it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Bits per second.
    pub(crate) rate: u32,
    /// One way.
    pub(crate) delay: Duration,
    pub(crate) seconds: u32,
    pub(crate) mtu: Option<u16>,
    pub(crate) seed: u64,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            rate: 20_000_000,
            delay: Duration::from_millis(20),
            seconds: SECONDS,
            mtu: None,
            seed: 1,
        }
    }
}

impl Setting {
    /// One bandwidth-delay product, bytes.
    pub(crate) fn queue(&self) -> u64 {
        let round_trip = self.delay.as_millis() as u64 * 2;
        u64::from(self.rate) * round_trip / 8000
    }

    /// What the queue adds to the round trip when it is full, seconds.
    pub(crate) fn full_queue(&self) -> f64 {
        self.queue() as f64 * 8.0 / f64::from(self.rate)
    }

    /// Seconds at the start that do not count.
    pub(crate) fn omitted(&self) -> u32 {
        self.seconds / 6
    }

    /// For `towline relay`, in both directions.
    pub(crate) fn spec(&self) -> String {
        format!(
            "rate={}bit,delay={}ms,queue={}b",
            self.rate,
            self.delay.as_millis(),
            self.queue()
        )
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} Mbit/s both ways, {} ms round trip, drop-tail queue of {} bytes (1 BDP); {} s, the first {} not counted",
            self.rate / 1_000_000,
            self.delay.as_millis() * 2,
            self.queue(),
            self.seconds,
            self.omitted(),
        )
    }
}

#[cfg(test)]
mod tests;
