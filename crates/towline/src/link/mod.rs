//! The delta link: telemetry over bad links. Feature `link`.
//!
//! An [`Uplink`] keeps every record that it is given in a [`Store`] and sends it to a [`Downlink`], over
//! whatever connections there are: QUIC, and TLS over TCP where UDP is blocked. What to send and when is
//! [`towline_link`]'s business; here are sockets, clocks, threads and files.

mod carrier;
mod crash;
mod dial;
mod disk;
mod disk_store;
mod downlink;
mod status;
mod store;
mod uplink;
mod via;

use towline_link::carriage::{ACK_DELAY, IDLE_TIMEOUT, KEEP_ALIVE, PACKETS_PER_ACK};

use crate::config::{Options, TransportConfig};

pub use crash::crash_point;
pub use dial::{Dialer, Fallback};
pub use disk::{FileDisk, FileError};
pub use disk_store::{DiskStore, Opened};
pub use downlink::{Downlink, DownlinkError, Listener};
pub use status::{PushError, State, Status, UplinkConfig};
pub use store::{Kept, MemoryStore, Store, StoreError, Stored};
pub use towline_link::codec::{Malformed, Record};
pub use towline_link::receiver::{Arrival, Delivery, ReceiverStats};
pub use towline_link::sender::{Class, Held, SenderConfig, SenderStats};
pub use towline_link::spool::{self, Full, SpoolConfig};
pub use towline_link::{Hello, LiveFilter, PathPatterns};
pub use uplink::Uplink;
pub use via::Via;

/// The application protocol of the link (RFC 7301).
pub const ALPN: &str = "towline-link/1";

/// What both ends of a link choose for their connections: few acknowledgements, no search for large packets
/// that nothing fills, and patience.
#[must_use]
pub fn options() -> Options {
    let transport = TransportConfig::default()
        .mtu_search(false)
        .packets_per_ack(PACKETS_PER_ACK)
        .max_ack_delay(ACK_DELAY)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IDLE_TIMEOUT);
    Options::new(ALPN).transport(transport)
}
