//! The framed echo: `towline stcp echo-server` and `echo-load` are made of it.
//!
//! It takes any stream: the comparison benchmarks include these files, so that all stacks that are
//! compared run the same code.

mod frames;
mod latencies;
mod load;

pub use frames::{Client, MAX_PAYLOAD, serve};
pub use latencies::Latencies;
pub use load::{Connect, Load, Plan, load};
