//! HTTP/3 between two endpoints, over simulated links.

#[path = "../common/mod.rs"]
mod common;
mod exchanges;
mod memory;
mod router;
mod tunnels;
mod world;
