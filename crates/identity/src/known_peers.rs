//! Known peers: who showed which key at the first contact (trust on first use).
//!
//! A text with one peer a line, `NAME sha256/PIN YYYY-MM-DD`; empty lines and those that begin
//! with `#` are kept as they are. `towline` holds the file, compares each peer with
//! [`KnownPeers::lookup`] and writes the text back after [`KnownPeers::add`].

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustls::pki_types::UnixTime;

use crate::error::PinError;
use crate::pin::KeyPin;

/// Cap: peers in one list. A server's clients can add to it, so it needs an end.
pub const MAX_KNOWN_PEERS: usize = 10_000;

/// Longest name: a DNS name and a port.
const MAX_NAME_LEN: usize = 260;

/// One known peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPeer {
    /// As the caller names it, such as `192.0.2.7:6379`.
    pub name: String,
    /// The key that it showed.
    pub key: KeyPin,
    /// The day of the first contact (UTC).
    pub first_seen: Day,
}

/// A day of the calendar, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day {
    year: u16,
    month: u8,
    day: u8,
}

/// What the list says of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This name with this key.
    Known,
    /// A name that is not in the list.
    New,
    /// The name with another key: another machine, a new key, or somebody on the path.
    Changed {
        /// The key in the list.
        expected: KeyPin,
    },
}

/// Why a text is no list, or a peer cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnownPeersError {
    /// The bytes are not UTF-8.
    #[error("line {line} is not UTF-8 text")]
    NotText {
        /// From 1.
        line: usize,
    },
    /// A line does not have its three parts.
    #[error("line {line} must read `NAME sha256/PIN YYYY-MM-DD`")]
    NotThreeParts {
        /// From 1.
        line: usize,
    },
    /// The second part is no pin.
    #[error("line {line}: {why}")]
    Pin {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        why: PinError,
    },
    /// The third part is no day.
    #[error("line {line}: `{text}` is not a day of the form YYYY-MM-DD")]
    Day {
        /// From 1.
        line: usize,
        /// What is there instead.
        text: String,
    },
    /// A name has two lines.
    #[error("line {line}: `{name}` is in line {first} already; remove one of the two")]
    Twice {
        /// From 1.
        line: usize,
        /// The earlier line.
        first: usize,
        /// The name.
        name: String,
    },
    /// The list has [`MAX_KNOWN_PEERS`] peers.
    #[error("the list has {MAX_KNOWN_PEERS} peers and takes no more; remove what is not needed")]
    Full,
    /// A name that would not survive in a line.
    #[error("`{0}` cannot be the name of a peer: 1 to 260 visible characters, not `#` at first")]
    BadName(String),
}

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPeers {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    /// A comment or an empty line.
    Other(String),
    Peer(KnownPeer),
}

impl KnownPeers {
    /// Reads a list.
    ///
    /// # Errors
    /// At the first line that is wrong: a damaged list must not pass for a shorter one.
    pub fn parse(bytes: &[u8]) -> Result<KnownPeers, KnownPeersError> {
        let mut list = KnownPeers::default();
        let mut places = std::collections::BTreeMap::new();
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        for (index, bytes) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = index + 1;
            let text = std::str::from_utf8(bytes).map_err(|_| KnownPeersError::NotText { line })?;
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.trim().is_empty() || text.starts_with('#') {
                list.lines.push(Line::Other(text.to_owned()));
                continue;
            }
            let peer = parse_line(text, line)?;
            if let Some(first) = places.insert(peer.name.clone(), line) {
                return Err(KnownPeersError::Twice {
                    line,
                    first,
                    name: peer.name,
                });
            }
            if places.len() > MAX_KNOWN_PEERS {
                return Err(KnownPeersError::Full);
            }
            list.lines.push(Line::Peer(peer));
        }
        // An empty text is no line at all.
        if bytes.is_empty() {
            list.lines.clear();
        }
        Ok(list)
    }

    /// The list as a text.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = String::new();
        for line in &self.lines {
            let _ = match line {
                Line::Other(text) => writeln!(out, "{text}"),
                Line::Peer(peer) => {
                    writeln!(out, "{} {} {}", peer.name, peer.key, peer.first_seen)
                }
            };
        }
        out.into_bytes()
    }

    /// The peers, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &KnownPeer> {
        self.lines.iter().filter_map(|line| match line {
            Line::Peer(peer) => Some(peer),
            Line::Other(_) => None,
        })
    }

    /// What the list says of `name` with `key`.
    pub fn lookup(&self, name: &str, key: &KeyPin) -> Lookup {
        match self.iter().find(|peer| peer.name == name) {
            None => Lookup::New,
            Some(peer) if peer.key == *key => Lookup::Known,
            Some(peer) => Lookup::Changed { expected: peer.key },
        }
    }

    /// Adds a peer met at `now` for the first time.
    ///
    /// # Errors
    /// When the name cannot stand in a line or is there already, or the list is full.
    pub fn add(&mut self, name: &str, key: KeyPin, now: UnixTime) -> Result<(), KnownPeersError> {
        let visible = |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control());
        if !(1..=MAX_NAME_LEN).contains(&name.len()) || name.starts_with('#') || !visible(name) {
            return Err(KnownPeersError::BadName(name.escape_debug().to_string()));
        }
        let is_named = |line: &Line| matches!(line, Line::Peer(peer) if peer.name == name);
        if let Some(first) = self.lines.iter().position(is_named) {
            return Err(KnownPeersError::Twice {
                line: self.lines.len() + 1,
                first: first + 1,
                name: name.to_owned(),
            });
        }
        if self.iter().count() >= MAX_KNOWN_PEERS {
            return Err(KnownPeersError::Full);
        }
        self.lines.push(Line::Peer(KnownPeer {
            name: name.to_owned(),
            key,
            first_seen: Day::of(now),
        }));
        Ok(())
    }
}

fn parse_line(text: &str, line: usize) -> Result<KnownPeer, KnownPeersError> {
    let mut parts = text.split_ascii_whitespace();
    let (Some(name), Some(pin), Some(day), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(KnownPeersError::NotThreeParts { line });
    };
    if name.len() > MAX_NAME_LEN {
        return Err(KnownPeersError::BadName(name.escape_debug().to_string()));
    }
    Ok(KnownPeer {
        name: spelt(name),
        key: pin
            .parse()
            .map_err(|why| KnownPeersError::Pin { line, why })?,
        first_seen: Day::parse(day).ok_or_else(|| KnownPeersError::Day {
            line,
            text: day.escape_debug().to_string(),
        })?,
    })
}

/// An address in the one spelling that lookups use, however somebody wrote it; other names as they
/// are.
fn spelt(name: &str) -> String {
    if let Ok(address) = name.parse::<SocketAddr>() {
        address.to_string()
    } else if let Ok(ip) = name.parse::<IpAddr>() {
        ip.to_string()
    } else {
        name.to_owned()
    }
}

impl Day {
    /// The day that `time` falls on; at most the end of the year 9999.
    pub fn of(time: UnixTime) -> Day {
        const LAST: u64 = 253_402_300_799;
        let since = Duration::from_secs(time.as_secs().min(LAST));
        // Howard Hinnant's civil_from_days, for days since 0000-03-01.
        let days = since.as_secs() / 86_400 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        Day {
            year: year as u16,
            month: month as u8,
            day: day as u8,
        }
    }

    fn parse(text: &str) -> Option<Day> {
        let bytes = text.as_bytes();
        let digits = |at: std::ops::Range<usize>| {
            let part = text.get(at)?;
            part.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| part.parse::<u16>().ok())
                .flatten()
        };
        if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
            return None;
        }
        let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(Day {
            year,
            month: month as u8,
            day: day as u8,
        })
    }
}

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests;
