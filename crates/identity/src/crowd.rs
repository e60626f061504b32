//! Who goes when a place is wanted: one of those that hold the most.
//!
//! Whatever unknown peers can fill (handshakes under way, lists of peers met first) is shared out by
//! party: each member has a path of groups, such as user, prefix and address. The one that goes is of
//! the largest group, within it of the largest again, and so on: who floods displaces himself, however
//! finely he spreads. All calls cost the logarithm of the number of members.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Levels of groups that an address has.
pub const ADDRESS_LEVELS: usize = 3;

/// The groups of an address, the widest first: of IPv4 its /16, /24 and itself, of IPv6 its /32, /48
/// and /64. Loopback is one: whoever is on this machine has all of its addresses.
pub fn address_groups(ip: IpAddr) -> [u128; ADDRESS_LEVELS] {
    // As IPv6 has them, so that no number is of both families.
    let mapped = |ip: Ipv4Addr, bits: u32| {
        let masked = ip.to_bits() & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        Ipv4Addr::from_bits(masked).to_ipv6_mapped().to_bits()
    };
    match ip.to_canonical() {
        ip if ip.is_loopback() => [mapped(Ipv4Addr::LOCALHOST, 32); ADDRESS_LEVELS],
        IpAddr::V4(ip) => [16, 24, 32].map(|bits| mapped(ip, bits)),
        IpAddr::V6(ip) => [32, 48, 64].map(|bits| ip.to_bits() & u128::MAX << (128 - bits)),
    }
}

/// Which member of a group goes, and which of two groups that are equally large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// The oldest: it had its time.
    Oldest,
    /// The newest: what has been there for long stays.
    Newest,
}

/// Members in groups.
#[derive(Clone, Debug)]
pub struct Crowd<T> {
    goes: Goes,
    all: Group<T>,
}

#[derive(Clone, Debug)]
struct Group<T> {
    /// The age of its first member.
    since: u64,
    len: usize,
    /// By age; of a group without groups.
    members: BTreeMap<u64, T>,
    groups: BTreeMap<u128, Group<T>>,
    /// Of `groups`; the last is the one that one goes of.
    ranks: BTreeSet<Rank>,
}

/// Members, what is looked at where they are equally many, and the key.
type Rank = (usize, u64, u128);

impl<T> Crowd<T> {
    /// Nobody yet.
    pub fn new(goes: Goes) -> Self {
        Self {
            goes,
            all: Group::new(0),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.len == 0
    }

    /// Adds a member to the groups of `path`, the widest first; all paths are equally long. `age` is a
    /// number that grows from one member to the next.
    pub fn insert(&mut self, path: &[u128], age: u64, member: T) {
        self.all.insert(self.goes, path, age, member);
    }

    /// Takes a member out, if it is there still.
    pub fn remove(&mut self, path: &[u128], age: u64) -> Option<T> {
        self.all.remove(self.goes, path, age)
    }

    /// Takes out the one that goes for another.
    pub fn displace(&mut self) -> Option<T> {
        self.all.displace(self.goes)
    }
}

impl<T> Group<T> {
    fn new(since: u64) -> Self {
        Self {
            since,
            len: 0,
            members: BTreeMap::new(),
            groups: BTreeMap::new(),
            ranks: BTreeSet::new(),
        }
    }

    fn rank(&self, goes: Goes, key: u128) -> Rank {
        let age = match goes {
            Goes::Oldest => u64::MAX - self.since,
            Goes::Newest => self.since,
        };
        (self.len, age, key)
    }

    fn insert(&mut self, goes: Goes, path: &[u128], age: u64, member: T) {
        self.len += 1;
        let Some((&key, path)) = path.split_first() else {
            self.members.insert(age, member);
            return;
        };
        let group = self.groups.entry(key).or_insert_with(|| Group::new(age));
        self.ranks.remove(&group.rank(goes, key));
        group.insert(goes, path, age, member);
        self.ranks.insert(group.rank(goes, key));
    }

    fn remove(&mut self, goes: Goes, path: &[u128], age: u64) -> Option<T> {
        let member = match path.split_first() {
            None => self.members.remove(&age),
            Some((&key, path)) => self.within(goes, key, |group| group.remove(goes, path, age)),
        };
        self.len -= usize::from(member.is_some());
        member
    }

    fn displace(&mut self, goes: Goes) -> Option<T> {
        let member = match self.ranks.last() {
            Some(&(_, _, key)) => self.within(goes, key, |group| group.displace(goes)),
            None => match goes {
                Goes::Oldest => self.members.pop_first(),
                Goes::Newest => self.members.pop_last(),
            }
            .map(|(_, member)| member),
        };
        self.len -= usize::from(member.is_some());
        member
    }

    /// Takes a member out of a group, and the group with its last one.
    fn within(
        &mut self,
        goes: Goes,
        key: u128,
        take: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let group = self.groups.get_mut(&key)?;
        self.ranks.remove(&group.rank(goes, key));
        let member = take(group);
        match group.len {
            0 => drop(self.groups.remove(&key)),
            _ => drop(self.ranks.insert(group.rank(goes, key))),
        }
        member
    }
}

#[cfg(test)]
mod tests;
