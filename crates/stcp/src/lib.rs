//! Secure TCP, without I/O: TLS 1.3 (RFC 8446) over a byte stream.
//!
//! 1. [`Handshake`]: bytes in and out until both sides are known; rustls does the work.
//! 2. [`Established`]: who the peer is, and the traffic keys. Either
//! 3. [`Session`]: records of our own in user space, of which the kernel (kTLS) may make those that
//!    are sent from some point on; or
//! 4. [`KernelKeys`] for a kernel module's socket, whose records are all the kernel's.
//!
//! `towline` drives it over sockets; the agent of the kernel module and of the preload shim does
//! too. What stays here: the record layer, key updates, session tickets, alerts and the limits of
//! the AEADs. Plain TLS on the wire: any TLS 1.3 peer will do. No socket, no clock, no file.
#![forbid(unsafe_code)]

mod buffers;
mod config;
mod error;
mod handshake;
mod keys;
mod limits;
mod post_handshake;
mod record;
mod session;

pub use buffers::Buffers;
pub use config::{ALPN, Alpn, Authentication, ClientConfig, Records, ServerConfig};
pub use error::SessionError;
pub use handshake::{Established, Handshake};
pub use keys::{CipherKeys, KernelKeys};
pub use limits::MAX_PLAINTEXT;
pub use session::{Read, Session};
pub use towline_identity as identity;
