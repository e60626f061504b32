//! Secure TCP over real sockets on the loopback interface.

mod files;
mod interop;
#[cfg(target_os = "linux")]
mod kernel;
mod listener;
mod model;
mod peers;
mod splices;
mod streams;
