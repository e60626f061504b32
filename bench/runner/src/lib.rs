//! What the comparisons share: building our programs, running them in rounds, what comes of that in
//! numbers, tables, results and charts, describing the machine, the page that stays.
//!
//! Used by `bench-quic` (other QUIC stacks), `bench-wt` (other WebTransport stacks), `bench-stcp` (other TLS
//! stacks), `bench-paths` and `bench-neighbour` (Linux TCP on one bottleneck).
//! It knows no stack, measures nothing itself, and has no marks.

pub mod bars;
pub mod build;
pub mod figures;
pub mod flags;
pub mod machine;
pub mod material;
pub mod page;
pub mod process;
pub mod results;
pub mod rounds;
pub mod tables;
pub mod verdict;
pub mod veth;

/// What went wrong, as a sentence.
pub type Outcome<T = ()> = Result<T, String>;
