//! Known peers: who showed which key at the first contact (trust on first use).
//!
//! A text with one key of a peer a line, `NAME sha256/PIN YYYY-MM-DD`; empty lines and those that begin
//! with `#` are kept as they are. `towline` holds the file, compares each peer with
//! [`KnownPeers::lookup`] and writes the text back after [`KnownPeers::add_server`] or
//! [`KnownPeers::add_client`]. A server has one key, unless somebody writes down another; at a client's
//! address there may be several users, or several hosts behind one NAT. When the list is full, room is
//! made among the addresses with the most lines (`crowd`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustls::pki_types::UnixTime;

use crate::crowd::{ADDRESS_LEVELS, Crowd, Goes, address_groups};
use crate::pin::{KeyPin, PinError};

/// Cap: lines with peers in one list. Unknown peers can add to it, so it needs an end.
pub const MAX_KNOWN_PEERS: usize = 10_000;

/// Cap: keys that are learnt of clients at one address.
pub const MAX_KEYS_OF_AN_ADDRESS: usize = 16;

/// Cap: keys that are learnt of clients in one prefix (IPv4 /24, IPv6 /64; loopback is one).
pub const MAX_KEYS_OF_A_PREFIX: usize = 1024;

/// Longest name: a DNS name and a port.
const MAX_NAME_LEN: usize = 260;

/// One key of a known peer.
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
        /// The first key in the list.
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
    /// A name has two lines with the same key, or is there already.
    #[error("line {line}: `{name}` is in line {first} already; remove one of the two")]
    Twice {
        /// From 1.
        line: usize,
        /// The earlier line.
        first: usize,
        /// The name.
        name: String,
    },
    /// The list has [`MAX_KNOWN_PEERS`] lines with peers, and none that would have to go for this one.
    #[error("the list has {MAX_KNOWN_PEERS} peers and takes no more; remove what is not needed")]
    Full,
    /// Where this client is there are too many already.
    #[error(
        "{most} keys of clients at {place} are in the list, and it takes no more from there; remove the \
         lines of those that are gone, or pin the clients' keys in a policy"
    )]
    Crowded {
        /// An address or a prefix.
        place: String,
        /// How many that may be.
        most: usize,
    },
    /// A name that would not survive in a line.
    #[error("`{0}` cannot be the name of a peer: 1 to 260 visible characters, not `#` at first")]
    BadName(String),
}

/// The list.
#[derive(Clone, Debug, Default)]
pub struct KnownPeers {
    /// By a number that grows.
    lines: BTreeMap<u64, Line>,
    next: u64,
    peers: usize,
    names: BTreeMap<String, Vec<u64>>,
    /// Of a list that is full: the lines, by the groups of their addresses.
    crowd: Option<Crowd<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    /// A comment or an empty line.
    Other(String),
    Peer(KnownPeer, Option<Groups>),
}

/// Those of an address, the widest first.
type Groups = [u128; ADDRESS_LEVELS];

impl PartialEq for KnownPeers {
    fn eq(&self, other: &Self) -> bool {
        self.lines.values().eq(other.lines.values())
    }
}

impl Eq for KnownPeers {}

impl KnownPeers {
    /// Reads a list.
    ///
    /// # Errors
    /// At the first line that is wrong: a damaged list must not pass for a shorter one.
    pub fn parse(bytes: &[u8]) -> Result<KnownPeers, KnownPeersError> {
        let mut list = KnownPeers::default();
        // An empty text is no line at all.
        if bytes.is_empty() || bytes == b"\n" {
            return Ok(list);
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        for (index, bytes) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = index + 1;
            let text = std::str::from_utf8(bytes).map_err(|_| KnownPeersError::NotText { line })?;
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.trim().is_empty() || text.starts_with('#') {
                list.push(Line::Other(text.to_owned()));
                continue;
            }
            let peer = parse_line(text, line)?;
            if let Some(first) = list.place_of(&peer.name, |known| known.key == peer.key) {
                return Err(KnownPeersError::Twice {
                    line,
                    first,
                    name: peer.name,
                });
            }
            if list.peers == MAX_KNOWN_PEERS {
                return Err(KnownPeersError::Full);
            }
            list.push_peer(peer);
        }
        Ok(list)
    }

    /// The list as a text.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = String::new();
        for line in self.lines.values() {
            let _ = match line {
                Line::Other(text) => writeln!(out, "{text}"),
                Line::Peer(peer, _) => {
                    writeln!(out, "{} {} {}", peer.name, peer.key, peer.first_seen)
                }
            };
        }
        out.into_bytes()
    }

    /// The peers' keys, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &KnownPeer> {
        self.lines.values().filter_map(Line::peer)
    }

    /// What the list says of `name` with `key`.
    pub fn lookup(&self, name: &str, key: &KeyPin) -> Lookup {
        let mut expected = None;
        for peer in self.of_name(name).filter_map(|(_, line)| line.peer()) {
            if peer.key == *key {
                return Lookup::Known;
            }
            expected.get_or_insert(peer.key);
        }
        match expected {
            None => Lookup::New,
            Some(expected) => Lookup::Changed { expected },
        }
    }

    /// Adds a server met at `now` for the first time. In a full list room is made: what had to go.
    ///
    /// # Errors
    /// When the name cannot stand in a line or is there already, or the list is full.
    pub fn add_server(
        &mut self,
        name: &str,
        key: KeyPin,
        now: UnixTime,
    ) -> Result<Option<KnownPeer>, KnownPeersError> {
        self.add(name, key, now, |_| true)
    }

    /// Adds a client met at `now` for the first time, also where others are known by the same name, which
    /// is its address. In a full list room is made: what had to go.
    ///
    /// # Errors
    /// When the name cannot stand in a line or is there with this key already, there are too many where
    /// it is, or the list is full.
    pub fn add_client(
        &mut self,
        name: &str,
        key: KeyPin,
        now: UnixTime,
    ) -> Result<Option<KnownPeer>, KnownPeersError> {
        let is_same = |known: &KnownPeer| known.key == key;
        if self.place_of(name, is_same).is_none() {
            self.check_room_at(name)?;
        }
        self.add(name, key, now, is_same)
    }

    fn add(
        &mut self,
        name: &str,
        key: KeyPin,
        now: UnixTime,
        is_same: impl Fn(&KnownPeer) -> bool,
    ) -> Result<Option<KnownPeer>, KnownPeersError> {
        let visible = |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control());
        if !(1..=MAX_NAME_LEN).contains(&name.len()) || name.starts_with('#') || !visible(name) {
            return Err(KnownPeersError::BadName(name.escape_debug().to_string()));
        }
        if let Some(first) = self.place_of(name, is_same) {
            return Err(KnownPeersError::Twice {
                line: self.lines.len() + 1,
                first,
                name: name.to_owned(),
            });
        }
        let displaced = match self.peers < MAX_KNOWN_PEERS {
            true => None,
            false => Some(self.make_room(groups(name))?),
        };
        self.push_peer(KnownPeer {
            name: name.to_owned(),
            key,
            first_seen: Day::of(now),
        });
        Ok(displaced)
    }

    /// Whether clients may be learnt where this one is.
    fn check_room_at(&self, name: &str) -> Result<(), KnownPeersError> {
        let crowded = |place, most| Err(KnownPeersError::Crowded { place, most });
        if self.of_name(name).count() >= MAX_KEYS_OF_AN_ADDRESS {
            return crowded(name.to_owned(), MAX_KEYS_OF_AN_ADDRESS);
        }
        let Some(here) = groups(name).as_ref().map(prefix) else {
            return Ok(());
        };
        let is_near =
            |line: &&Line| matches!(line, Line::Peer(_, Some(there)) if prefix(there) == here);
        if self.lines.values().filter(is_near).count() >= MAX_KEYS_OF_A_PREFIX {
            let place = format!("the prefix of {name}");
            return crowded(place, MAX_KEYS_OF_A_PREFIX);
        }
        Ok(())
    }

    /// Takes out a line for a newcomer, unless his own would be the one to go. What is there without an
    /// address somebody wrote, and it stays.
    fn make_room(&mut self, newcomer: Option<Groups>) -> Result<KnownPeer, KnownPeersError> {
        let groups = newcomer.ok_or(KnownPeersError::Full)?;
        let lines = &self.lines;
        let crowd = self.crowd.get_or_insert_with(|| {
            let mut crowd = Crowd::new(Goes::Newest);
            for (number, line) in lines {
                if let Line::Peer(_, Some(groups)) = line {
                    crowd.insert(groups, *number, *number);
                }
            }
            crowd
        });
        crowd.insert(&groups, self.next, self.next);
        let number = crowd.displace().ok_or(KnownPeersError::Full)?;
        if number == self.next {
            return Err(KnownPeersError::Full);
        }
        crowd.remove(&groups, self.next);
        let Some(Line::Peer(peer, _)) = self.lines.remove(&number) else {
            return Err(KnownPeersError::Full);
        };
        self.peers -= 1;
        if let Some(numbers) = self.names.get_mut(&peer.name) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.names.remove(&peer.name);
            }
        }
        Ok(peer)
    }

    fn push_peer(&mut self, peer: KnownPeer) {
        let groups = groups(&peer.name);
        let numbers = self.names.entry(peer.name.clone()).or_default();
        numbers.push(self.next);
        if let (Some(crowd), Some(groups)) = (&mut self.crowd, groups) {
            crowd.insert(&groups, self.next, self.next);
        }
        self.peers += 1;
        self.push(Line::Peer(peer, groups));
    }

    fn push(&mut self, line: Line) {
        self.lines.insert(self.next, line);
        self.next += 1;
    }

    fn of_name(&self, name: &str) -> impl Iterator<Item = (u64, &Line)> {
        let numbers = self.names.get(name).into_iter().flatten();
        numbers.filter_map(|number| Some((*number, self.lines.get(number)?)))
    }

    /// The number of its line, from 1.
    fn place_of(&self, name: &str, is_same: impl Fn(&KnownPeer) -> bool) -> Option<usize> {
        let (number, _) = self
            .of_name(name)
            .find(|(_, line)| line.peer().is_some_and(&is_same))?;
        Some(self.lines.range(..=number).count())
    }
}

impl Line {
    fn peer(&self) -> Option<&KnownPeer> {
        match self {
            Self::Peer(peer, _) => Some(peer),
            Self::Other(_) => None,
        }
    }
}

/// Those of the address that is or begins a name.
fn groups(name: &str) -> Option<Groups> {
    let ip = match name.parse::<SocketAddr>() {
        Ok(address) => address.ip(),
        // The network of a link-local address follows it.
        Err(_) => name.split('%').next()?.parse().ok()?,
    };
    Some(address_groups(ip))
}

/// What one network has of addresses: of IPv4 the /24, of IPv6 the /64, which every host of it has all of.
fn prefix(groups: &Groups) -> u128 {
    let [_, prefix, address] = groups;
    match Ipv6Addr::from_bits(*address).to_ipv4_mapped() {
        Some(_) => *prefix,
        None => *address,
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
