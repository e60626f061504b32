//! Where connections send datagrams that a router may find too big.
//!
//! A router's notice names the peer's connection ID, by which no table of the endpoint leads to a
//! connection. So it is noted where those connections send that are worth asking, which most
//! never are.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::slots::ConnectionHandle;
use crate::connection::assemble::MIN_INITIAL_DATAGRAM;

/// Cap: connections to one address that are asked whether a notice is about them.
const MAX_ASKED: usize = 64;

/// Connections that send larger datagrams than every path carries, by where they send them.
#[derive(Default)]
pub(super) struct LargeSenders(BTreeSet<(SocketAddr, ConnectionHandle)>);

impl LargeSenders {
    /// A connection sends large datagrams to `now`, and did to `before`.
    pub(super) fn replace(
        &mut self,
        handle: ConnectionHandle,
        before: Option<SocketAddr>,
        now: Option<SocketAddr>,
    ) {
        if let Some(remote) = before {
            self.0.remove(&(remote, handle));
        }
        if let Some(remote) = now {
            self.0.insert((remote, handle));
        }
    }

    /// The first of those that send them to `remote`.
    pub(super) fn to(&self, remote: SocketAddr) -> impl Iterator<Item = ConnectionHandle> + '_ {
        let bound = |number| ConnectionHandle {
            index: number,
            generation: number,
        };
        let all = (remote, bound(0))..=(remote, bound(u32::MAX));
        self.0.range(all).take(MAX_ASKED).map(|(_, handle)| *handle)
    }
}

/// Whether a router may find datagrams of so many bytes too big.
#[inline]
pub(super) fn may_be_too_big(datagram: usize) -> bool {
    datagram > MIN_INITIAL_DATAGRAM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_connections_to_one_address_64_are_asked_and_none_to_another() {
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let handle = |index| ConnectionHandle {
            index,
            generation: 7,
        };
        let mut senders = LargeSenders::default();
        for index in 0..100 {
            senders.replace(handle(index), None, Some(address(1)));
        }
        assert_eq!(senders.to(address(1)).count(), MAX_ASKED);
        assert_eq!(senders.to(address(2)).count(), 0);
        for index in 0..99 {
            senders.replace(handle(index), Some(address(1)), Some(address(2)));
        }
        let left: Vec<_> = senders.to(address(1)).collect();
        assert_eq!(left, [handle(99)]);
        senders.replace(handle(99), Some(address(1)), None);
        assert_eq!(senders.to(address(1)).count(), 0);
    }
}
