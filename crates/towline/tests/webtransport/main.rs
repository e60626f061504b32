//! WebTransport sessions between two endpoints, over simulated links.

#[path = "../common/mod.rs"]
mod common;
mod limits;
mod loopback;
mod safari;
mod sessions;
mod words;
mod world;
