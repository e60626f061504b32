//! [`Dialer`]: how an uplink gets a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::carrier::Channel;
use super::via::Via;
use crate::config::ClientConfig;
use crate::{Endpoint, stcp};

/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);
/// A second address is tried when the first has not answered for this long.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// What to do where UDP is blocked.
#[derive(Clone)]
#[non_exhaustive]
pub enum Fallback {
    /// Wait.
    Never,
    /// TLS over TCP, to the same port, until UDP is there again.
    Tls(stcp::ClientConfig),
}

/// Where the other end is, whom to believe there, and who we are.
#[derive(Clone)]
pub struct Dialer {
    host: String,
    port: u16,
    config: ClientConfig,
    fallback: Fallback,
}

impl Dialer {
    /// One for a host, by name or address, which is looked up for each attempt. The configuration is one with the
    /// link's [options](super::options).
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16, config: ClientConfig) -> Self {
        Self {
            host: host.into(),
            port,
            config,
            fallback: Fallback::Never,
        }
    }

    /// What to do where UDP is blocked; at first nothing.
    #[must_use]
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    pub(super) fn has_fallback(&self) -> bool {
        matches!(self.fallback, Fallback::Tls(_))
    }

    /// Connects, or says why not.
    pub(super) async fn dial(self, via: Via) -> Result<Channel, String> {
        let attempt = async {
            match via {
                Via::Udp => self.dial_udp().await,
                Via::Tls => self.dial_tls().await,
            }
        };
        let place = format!("{}:{}", self.host, self.port);
        match tokio::time::timeout(ATTEMPT, attempt).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(why)) => Err(format!("{place}: {why}")),
            Err(_) => Err(format!(
                "{place} does not answer{}: is it running, and does a firewall let it through?",
                match via {
                    Via::Udp => " over UDP",
                    Via::Tls => " over TCP",
                }
            )),
        }
    }

    /// The addresses of the host, the families by turns.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let found = tokio::net::lookup_host((&*self.host, self.port)).await;
        let found: Vec<SocketAddr> = found
            .map_err(|error| format!("its address is not known: {error}"))?
            .collect();
        let (six, four): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv6);
        let mut addresses = Vec::new();
        for at in 0..six.len().max(four.len()) {
            addresses.extend(six.get(at));
            addresses.extend(four.get(at));
        }
        Ok(addresses)
    }

    async fn dial_udp(&self) -> Result<Channel, String> {
        let mut attempts = tokio::task::JoinSet::new();
        let mut addresses = self.addresses().await?.into_iter();
        let mut failure = "it has no address".to_owned();
        let mut more = true;
        loop {
            if std::mem::take(&mut more) {
                match addresses.next() {
                    Some(address) => {
                        let (host, config) = (self.host.clone(), self.config.clone());
                        attempts.spawn(async move {
                            // A new socket each time: the interface may be another one.
                            let endpoint = Endpoint::client(any_address(address))
                                .map_err(|error| format!("no socket towards {address}: {error}"))?;
                            let connected = endpoint.connect(address, &host, &config).await;
                            connected.map_err(|error| error.to_string())
                        });
                    }
                    None if attempts.is_empty() => return Err(failure),
                    None => {}
                }
            }
            tokio::select! {
                Some(attempt) = attempts.join_next() => match attempt {
                    Ok(Ok(connection)) => return Ok(Channel::over_quic(connection, true)),
                    Ok(Err(why)) => (failure, more) = (why, true),
                    Err(error) => (failure, more) = (error.to_string(), true),
                },
                () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if addresses.len() > 0 => more = true,
            }
        }
    }

    async fn dial_tls(&self) -> Result<Channel, String> {
        let Fallback::Tls(config) = &self.fallback else {
            return Err("there is no fallback".to_owned());
        };
        let place = (&*self.host, self.port);
        let stream = stcp::connect(place, &self.host, config).await;
        stream
            .map(Channel::over_tls)
            .map_err(|error| error.to_string())
    }
}

fn any_address(towards: SocketAddr) -> SocketAddr {
    let any: IpAddr = match towards {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}
