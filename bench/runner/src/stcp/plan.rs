//! What is run: cells and stacks.

use std::fmt;

use clap::ValueEnum;

/// Of a run that counts: 70 s a cell and stack.
pub(crate) const SLICES: u32 = 5;
/// Seconds of each.
pub(crate) const SLICE_SECONDS: u32 = 14;

/// A way to carry the echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stack {
    /// TCP without encryption
    Plain,
    /// `towline stcp echo-*`: the library
    Towline,
    /// tokio-rustls
    Rustls,
    /// Plain TCP behind two `towline stcp proxy`
    Proxy,
    /// Plain TCP behind two stunnel
    Stunnel,
    /// tokio-openssl, with the system's OpenSSL
    Openssl,
    /// Plain TCP under `towline stcp run --tier relay`, both ends
    Relay,
    /// Plain TCP under `towline stcp run --tier user-relay`, both ends
    UserRelay,
}

impl Stack {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "tcp",
            Self::Towline => "towline",
            Self::Rustls => "rustls",
            Self::Proxy => "towline-proxy",
            Self::Stunnel => "stunnel",
            Self::Openssl => "openssl",
            Self::Relay => "towline-relay",
            Self::UserRelay => "towline-user-relay",
        }
    }

    /// Whether it is ours that is measured.
    pub(crate) const fn is_ours(self) -> bool {
        matches!(
            self,
            Self::Towline | Self::Proxy | Self::Relay | Self::UserRelay
        )
    }

    /// The tier of `stcp run` that both programs are under.
    pub(crate) const fn tier(self) -> Option<&'static str> {
        match self {
            Self::Relay => Some("relay"),
            Self::UserRelay => Some("user-relay"),
            _ => None,
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What lies between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The loopback interface.
    Loopback,
    /// A pair of veth between two network namespaces: what stays on one host, `stcp run` leaves in clear.
    Veth,
    /// `towline relay --tun` between two network namespaces: 100 Mbit/s, 20 ms round trip.
    Tun,
}

/// One load.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Bytes of a payload.
    pub(crate) size: u64,
    pub(crate) clients: u64,
    pub(crate) route: Route,
    pub(crate) stacks: Vec<Stack>,
}

impl Cell {
    /// The name of its results.
    pub(crate) fn measure(&self) -> String {
        match self.route {
            Route::Loopback => format!("echo_{}", self.size),
            Route::Veth => format!("echo_{}_veth", self.size),
            Route::Tun => format!("echo_{}_tun", self.size),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B × {}", self.size, self.clients)?;
        match self.route {
            Route::Loopback => Ok(()),
            Route::Veth => f.write_str(", two namespaces"),
            Route::Tun => f.write_str(", 100 Mbit/s, 20 ms"),
        }
    }
}

/// All of them, in the order of running.
pub(crate) fn cells() -> Vec<Cell> {
    use Stack::{Openssl, Plain, Proxy, Relay, Rustls, Stunnel, Towline, UserRelay};
    let cell = |size, clients, route, stacks: &[Stack]| Cell {
        size,
        clients,
        route,
        stacks: stacks.to_vec(),
    };
    let all = [Plain, Towline, Rustls, Openssl, Proxy, Stunnel];
    let tiers = [Plain, Towline, Relay, UserRelay];
    vec![
        cell(256, 50, Route::Loopback, &all),
        cell(4096, 20, Route::Loopback, &all),
        cell(16_384, 10, Route::Loopback, &all),
        cell(65_536, 5, Route::Loopback, &all),
        cell(256, 50, Route::Veth, &tiers),
        cell(16_384, 10, Route::Veth, &tiers),
        cell(16_384, 10, Route::Tun, &[Plain, Towline, Rustls]),
    ]
}
