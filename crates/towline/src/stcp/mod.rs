//! Secure TCP: TLS 1.3 over TCP, for programs that use this library and for programs that know
//! nothing of it.
//!
//! [`policy`] says who we are and whom we believe; [`agent`] makes the handshakes for programs
//! that the kernel module, the preload shim or the relay bring along; [`ktls`] hands keys to the
//! kernel. Protocol rules are in `towline-stcp`.

#[cfg(target_os = "linux")]
pub mod agent;
#[cfg(target_os = "linux")]
pub mod ktls;
pub mod policy;

pub use towline_stcp::{Authentication, SessionError};
