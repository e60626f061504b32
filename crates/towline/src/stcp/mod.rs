//! Secure TCP: TCP streams that are TLS 1.3 on the wire, for programs that use this library. Feature `stcp`.
//!
//! [`connect`] and [`listen`] are used as tokio's are. A [`Stream`] behaves as a TCP stream does,
//! with the errors that TCP has: what the peer did not end in order is `ConnectionReset`. Nothing
//! is ever sent in clear, and a [`Listener`] hands out only peers whose handshake is finished.
//!
//! [`client_config`] and [`server_config`] say who we are and whom we believe. [`ktls`] hands keys to
//! the kernel. [`handshake`] and [`slots`] are for those who carry the bytes themselves, as the agent in
//! `towline-agent` does for programs that know nothing of this. Protocol rules are in `towline-stcp`.

mod config;
mod connect;
mod error;
pub mod handshake;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
pub mod ktls;
mod listener;
mod records;
mod refusals;
pub mod slots;
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
