//! What a service tells its manager (systemd's sd_notify): datagrams to the socket that
//! `NOTIFY_SOCKET` names. Without that variable nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The manager, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that we live.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// As the environment says.
    pub(crate) fn from_environment() -> Self {
        let watchdog = std::env::var("WATCHDOG_USEC")
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|micros| *micros > 0)
            .map(Duration::from_micros);
        Self {
            to: std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
                let address = match name.as_bytes().strip_prefix(b"@") {
                    Some(name) => SocketAddr::from_abstract_name(name),
                    None => SocketAddr::from_pathname(&name),
                };
                Some((UnixDatagram::unbound().ok()?, address.ok()?))
            }),
            watchdog,
        }
    }

    /// Everything is open.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is being read; `ready` follows.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Says that we live as often as the manager asks for it, for ever: a hung service is restarted.
    pub(crate) async fn keep_alive(&self) {
        let Some(watchdog) = self.watchdog else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(watchdog / 2);
        loop {
            ticks.tick().await;
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.to
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::warn!("the service manager was not told {state}: {error}");
        }
    }
}
