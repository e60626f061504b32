//! WebTransport sessions between two endpoints, over simulated links.

#[path = "../common/mod.rs"]
mod common;
mod counts;
mod limits;
mod loopback;
mod router;
mod safari;
mod sessions;
mod words;
mod world;
