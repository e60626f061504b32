//! What a connection measured, under the same names everywhere: here, in `--json`
//! output and in metrics. The engine counts; this module only gives the names a home.
//!
//! [`Visit`] shows every field by its name, unit and kind; [`Totals`] sums up many.

pub use towline_quic::stats::{Field, Kind, Line, Spread, Total, Totals, Unit, Value, Visit};
pub use towline_quic::{EndpointStats, Stats};

pub use crate::io::SocketStats;
