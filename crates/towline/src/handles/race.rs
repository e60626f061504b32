//! [`Race`]: one connection to whichever of several addresses answers first (RFC 8305, Happy Eyeballs).
//!
//! Attempts begin one after the other: the next one when the last has failed, or has taken
//! [`ATTEMPT_DELAY`]. The first that succeeds wins, and the others are given up. Called by who has a
//! timer; it has none itself.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use towline_quic::ClientConfig;
use towline_wire::Time;

use super::connecting::Connecting;
use super::connection::Connection;
use super::endpoint::Endpoint;
use super::error::ConnectError;

/// How long an attempt is alone before the next one begins beside it (RFC 8305 §5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Cap: addresses of one host that are tried; who answers for its name may name thousands.
const MAX_ADDRESSES: usize = 16;

/// Attempts to connect to several addresses of one peer.
///
/// [`poll`](Self::poll) it with the endpoint's [time](Endpoint::now), and again at
/// [`next_timeout`](Self::next_timeout).
#[must_use = "it does nothing until it is polled"]
pub struct Race {
    endpoint: Endpoint,
    config: ClientConfig,
    server_name: String,
    /// Not begun, the next one first.
    addresses: VecDeque<SocketAddr>,
    under_way: Vec<Connecting>,
    /// When the next one begins, if no other has failed before.
    next_at: Option<Time>,
    /// Of the attempt that failed last.
    error: ConnectError,
}

impl Endpoint {
    /// One connection to whichever of these addresses answers first, begun one after the other
    /// (RFC 8305). For who has a timer; on tokio there is `connect_host`.
    pub fn race(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        server_name: &str,
        config: &ClientConfig,
    ) -> Race {
        Race {
            endpoint: self.clone(),
            config: config.clone(),
            server_name: server_name.to_owned(),
            addresses: by_turns(addresses),
            under_way: Vec::new(),
            next_at: None,
            error: ConnectError::NoAddress,
        }
    }
}

impl Race {
    /// Ready with the first connection, or when the last attempt has failed, with why.
    pub fn poll(
        &mut self,
        now: Time,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Connection, ConnectError>> {
        loop {
            let mut at = 0;
            while let Some(attempt) = self.under_way.get_mut(at) {
                match Pin::new(attempt).poll(cx) {
                    Poll::Ready(Ok(connection)) => return Poll::Ready(Ok(connection)),
                    Poll::Ready(Err(error)) => {
                        self.error = error;
                        drop(self.under_way.remove(at));
                        self.next_at = None;
                    }
                    Poll::Pending => at += 1,
                }
            }
            if self.next_at.is_some_and(|next| now < next) {
                return Poll::Pending;
            }
            let Some(address) = self.addresses.pop_front() else {
                return match self.under_way.is_empty() {
                    true => Poll::Ready(Err(self.error.clone())),
                    false => Poll::Pending,
                };
            };
            let started = self
                .endpoint
                .start_connect(address, &self.server_name, &self.config);
            match started {
                Ok(attempt) => {
                    self.under_way.push(attempt);
                    self.next_at = Some(now + ATTEMPT_DELAY);
                }
                Err(error) => self.error = error,
            }
        }
    }

    /// When to poll again, if nobody wakes the task before.
    pub fn next_timeout(&self) -> Option<Time> {
        self.next_at.filter(|_| !self.addresses.is_empty())
    }
}

impl fmt::Debug for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race")
            .field("server_name", &self.server_name)
            .field("addresses", &self.addresses)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

/// The families by turns, IPv6 first, each in its order (RFC 8305 §4).
fn by_turns(addresses: impl IntoIterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let (six, four): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv6);
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    let mut all = VecDeque::new();
    loop {
        let pair = [six.next(), four.next()];
        if pair == [None, None] || all.len() >= MAX_ADDRESSES {
            all.truncate(MAX_ADDRESSES);
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_ipv6_begins() {
        let addresses = ["1.1.1.1:1", "1.1.1.2:1", "[::1]:1", "1.1.1.3:1", "[::2]:1"];
        let addresses = addresses.map(|text| text.parse::<SocketAddr>().unwrap());
        let sorted = by_turns(addresses).into_iter();
        let sorted: Vec<_> = sorted.map(|address| address.to_string()).collect();
        let expected = ["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "1.1.1.3:1"];
        assert_eq!(sorted, expected);
    }

    #[test]
    fn a_name_with_thousands_of_addresses_has_sixteen_tried() {
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let sorted = by_turns((1..5000).map(address));
        assert_eq!(sorted, (1..17).map(address).collect::<Vec<_>>());
    }
}
