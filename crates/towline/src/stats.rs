//! What a connection measured, under the same names everywhere: here, in `--json`
//! output and in metrics. The engine counts; this module only gives the names a home.

pub use towline_quic::Stats;

pub use crate::io::SocketStats;
