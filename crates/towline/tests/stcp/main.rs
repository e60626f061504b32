//! Secure TCP over real sockets on the loopback interface.

mod interop;
mod listener;
mod model;
mod peers;
mod streams;
