//! Secure TCP: TCP streams that are TLS 1.3 on the wire, for programs that use this library and for
//! programs that know nothing of it.
//!
//! [`connect`] and [`listen`] are used as tokio's are. A [`Stream`] behaves as a TCP stream does,
//! with the errors that TCP has: what the peer did not end in order is `ConnectionReset`. Nothing
//! is ever sent in clear, and a [`Listener`] hands out only peers whose handshake is finished.
//!
//! [`client_config`] and [`server_config`] say who we are and whom we believe, for this program;
//! [`policy`] reads the same from a file for the [`agent`], which makes the handshakes for programs
//! that the kernel module, the preload shim or the relay bring along. [`ktls`] hands keys to the
//! kernel. Protocol rules are in `towline-stcp`.

#[cfg(target_os = "linux")]
pub mod agent;
mod config;
mod connect;
mod error;
mod handshake;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
pub mod ktls;
mod listener;
pub mod policy;
mod records;
mod refusals;
mod slots;
mod splice;
mod stream;

pub use config::{Options, client_config, server_config};
pub use connect::{connect, connect_over};
pub use error::ConnectError;
pub use listener::{Limits, Listener, ListenerCounters, listen};
pub use refusals::RefusalLog;
pub use splice::{SpliceError, Spliced, splice};
pub use stream::{ReadHalf, Stream, WriteHalf};
pub use towline_stcp::{
    ALPN, Alpn, Authentication, ClientConfig, Records, ServerConfig, SessionError,
};
