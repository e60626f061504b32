//! The delta link: telemetry over bad links.
//!
//! [`codec`] turns batches of JSON objects into few bytes and back, whatever is lost or comes out of order.
//! Nothing here touches a socket, a clock, a thread or a file.
#![forbid(unsafe_code)]

pub mod codec;
pub mod spool;
