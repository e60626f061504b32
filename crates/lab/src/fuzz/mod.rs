//! Bodies of the fuzz targets: plain functions of the input, for libFuzzer, the stable mutator and
//! `cargo test` alike.
//!
//! Each returns a signature of what happened, by which the stable mutator tells new behaviour; a
//! broken promise is a panic. `packet` needs no keys, `frame` no engine, `connection` is a whole
//! connected pair behind the null AEAD, so that mutated bytes reach the frame handlers, `message` one
//! message with its readers, against a model, `agent` a request to the agent of secure TCP,
//! `http3_frames_capsules` what streams of HTTP/3 consist of, `qpack_decoder` compressed fields,
//! `http3_server` a whole server of HTTP/3 and WebTransport, `link_codec` batches of the delta link,
//! `link_messages` what its ends say, `link_spool` files of its spool.

mod agent;
#[cfg(debug_assertions)]
mod connection;
mod frame;
mod http3;
mod http3_server;
mod link_codec;
mod link_messages;
mod link_spool;
mod message;
mod mutate;
mod packet;
mod qpack_decoder;

pub use agent::agent;
#[cfg(debug_assertions)]
pub use connection::connection;
pub use frame::frame;
pub use http3::http3_frames_capsules;
pub use http3_server::http3_server;
pub use link_codec::link_codec;
pub use link_messages::link_messages;
pub use link_spool::link_spool;
pub use message::message;
pub use mutate::{Mutator, TARGETS, Target, target};
pub use packet::packet;
pub use qpack_decoder::qpack_decoder;

/// Release builds have no null AEAD, so there is nothing to run.
#[cfg(not(debug_assertions))]
pub fn connection(_input: &[u8]) {}
