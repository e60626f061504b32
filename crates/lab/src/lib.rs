//! Everything that runs whole connections on the simulator: worlds, the random swarm, fuzz bodies.
//!
//! ```text
//!   world     the simulator's world of endpoints, with a trace hash and checks at every event
//!   workload  applications at both ends of a connection, and the ledger that knows the truth
//!   swarm     per seed: features, strengths, workload; faults, then heal; invariants; shrinking
//!   scenario  flows with their controllers across a bottleneck, and what was measured
//!   matrix    what controllers must reach, row by row: plays scenarios, holds values against marks
//!   link      what a delta costs over a link that loses, and whole links with all that may happen to them
//!   torn_disk a disk that loses power and fails, under the delta link's spool
//!   shapes    Freenet's benchmark transfers, on virtual time
//!   fuzz      bodies of the fuzz targets as plain functions, and a stable random mutator
//! ```
//!
//! Programs `swarm` and `fuzz`, `cargo test` and `fuzz/` all call this code. It reads no clock, and
//! one seed is one run, byte for byte: TLS draws from testkit's seeded provider.
#![forbid(unsafe_code)]

pub mod fuzz;
mod host;
pub mod link;
pub mod matrix;
mod random;
pub mod scenario;
pub mod shapes;
pub mod swarm;
pub mod torn_disk;
mod violation;
pub mod workload;
pub mod world;

pub use host::Host;
pub use random::Random;
pub use violation::{Invariant, Violation};
