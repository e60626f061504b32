//! What the comparisons share: building our programs, running them, describing the
//! machine, the chart and the page that stay.
//!
//! Used by `bench-quic` (other QUIC stacks), `bench-stcp` (other TLS stacks) and `bench-neighbour`
//! (Linux TCP on one bottleneck).
//! It measures and judges nothing itself.

pub mod bars;
pub mod build;
pub mod machine;
pub mod material;
pub mod page;
pub mod process;
pub mod veth;

/// What went wrong, as a sentence.
pub type Outcome<T = ()> = Result<T, String>;
