//! The controllers by name: what a user writes, and why a text names none.
//!
//! Read by the configuration of every program; `Controller::new` makes what is named here. Knows
//! no controller's state.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

/// Least rate that can be asked for by name, bytes a second: a long handshake, 10 kB, takes 10 s at
/// it, and below that a connection is given up before it is there.
pub const LEAST_FIXED_RATE: u64 = 1000;

/// Which controller to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 9002 §7: halve on loss, one datagram per round trip otherwise.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// BBRv3, draft-ietf-ccwg-bbr-06.
    Bbr,
    /// draft-irtf-iccrg-ledbat-plus-plus: for transfers that make way for others.
    LedbatPlusPlus,
    /// So many bytes per second, whatever happens: for paths whose capacity is known.
    FixedRate(NonZeroU64),
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FixedRate(rate) => {
                f.write_str("fixed:")?;
                return write_rate(f, *rate);
            }
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::LedbatPlusPlus => "ledbat++",
        })
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "newreno" => Ok(Self::NewReno),
            "cubic" => Ok(Self::Cubic),
            "bbr" => Ok(Self::Bbr),
            "ledbat++" | "ledbat" => Ok(Self::LedbatPlusPlus),
            _ => match text.strip_prefix("fixed") {
                Some(rate) => {
                    parse_rate(rate.strip_prefix(':').unwrap_or("?")).map(Self::FixedRate)
                }
                None => Err(UnknownAlgorithm::Name),
            },
        }
    }
}

/// Why a text names no congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownAlgorithm {
    /// No controller has that name.
    Name,
    /// `fixed:` is followed by nothing that is a rate above zero.
    Rate,
    /// The fixed rate is below [`LEAST_FIXED_RATE`].
    TooSlow,
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => {
                "unknown congestion controller; known are newreno, cubic, bbr, ledbat++, fixed:RATE"
            }
            Self::Rate => {
                "a fixed rate is written fixed:10mbit (bits a second) or fixed:2M (bytes a second) \
                 and is more than zero"
            }
            Self::TooSlow => {
                return write!(
                    f,
                    "too slow for a handshake to finish; the least fixed rate is \
                     {LEAST_FIXED_RATE} bytes a second"
                );
            }
        })
    }
}

impl core::error::Error for UnknownAlgorithm {}

/// Reads a rate in bytes per second: `10mbit`, `500kbit` (bits), `2M`, `64k`, `1MiB` or `1250000`
/// (bytes), with or without `/s`.
fn parse_rate(text: &str) -> Result<NonZeroU64, UnknownAlgorithm> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| UnknownAlgorithm::Rate)?;
    let scale = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1_048_576.0,
        "gi" | "gib" => 1_073_741_824.0,
        "bit" => 0.125,
        "kbit" => 125.0,
        "mbit" => 125e3,
        "gbit" => 125e6,
        _ => return Err(UnknownAlgorithm::Rate),
    };
    let rate = number * scale;
    if rate.is_nan() || rate >= 4e18 {
        return Err(UnknownAlgorithm::Rate);
    }
    match NonZeroU64::new(rate as u64) {
        Some(rate) if rate.get() < LEAST_FIXED_RATE => Err(UnknownAlgorithm::TooSlow),
        rate => rate.ok_or(UnknownAlgorithm::Rate),
    }
}

/// Writes a rate so that `parse_rate` reads the same number.
fn write_rate(f: &mut fmt::Formatter<'_>, rate: NonZeroU64) -> fmt::Result {
    let rate = rate.get();
    match rate {
        _ if rate.is_multiple_of(125_000) => write!(f, "{}mbit", rate / 125_000),
        _ if rate.is_multiple_of(125) => write!(f, "{}kbit", rate / 125),
        _ => write!(f, "{rate}"),
    }
}

#[cfg(test)]
mod tests;
