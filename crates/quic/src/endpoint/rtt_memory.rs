//! Round trips to servers, kept from one connection to the next (RFC 9002 §6.2.2).
//!
//! The endpoint asks when it connects and tells when a client's connection is gone. A network that
//! changed in between costs a probe too many or one that comes late; nothing else rests on it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Cap: servers whose round trip is remembered; the one not heard of for longest goes first.
pub(crate) const MAX_REMEMBERED_RTTS: usize = 256;

/// The round trip to each of the latest servers, the newest last.
#[derive(Debug, Default)]
pub(crate) struct RttMemory {
    servers: VecDeque<(SocketAddr, Duration)>,
}

impl RttMemory {
    pub(crate) fn get(&self, server: SocketAddr) -> Option<Duration> {
        let mut newest_first = self.servers.iter().rev();
        newest_first
            .find(|(address, _)| *address == server)
            .map(|(_, rtt)| *rtt)
    }

    pub(crate) fn set(&mut self, server: SocketAddr, rtt: Duration) {
        let known = self.servers.iter().rposition(|(other, _)| *other == server);
        if let Some(place) = known {
            self.servers.remove(place);
        } else if self.servers.len() >= MAX_REMEMBERED_RTTS {
            self.servers.pop_front();
        }
        self.servers.push_back((server, rtt));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(n: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], n))
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_newest_round_trip_to_a_server_counts() {
        let mut memory = RttMemory::default();
        assert_eq!(memory.get(server(1)), None);
        memory.set(server(1), ms(10));
        memory.set(server(2), ms(20));
        memory.set(server(1), ms(30));
        assert_eq!(memory.get(server(1)), Some(ms(30)));
        assert_eq!(memory.get(server(2)), Some(ms(20)));
        assert_eq!(memory.servers.len(), 2);
    }

    #[test]
    fn of_257_servers_the_one_not_heard_of_for_longest_is_forgotten() {
        let mut memory = RttMemory::default();
        for n in 0..MAX_REMEMBERED_RTTS as u16 {
            memory.set(server(n), ms(10));
        }
        memory.set(server(0), ms(10));
        memory.set(server(1000), ms(10));
        assert_eq!(memory.servers.len(), MAX_REMEMBERED_RTTS);
        assert_eq!(memory.get(server(1)), None);
        assert!(memory.get(server(0)).is_some() && memory.get(server(1000)).is_some());
    }
}
