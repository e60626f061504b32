//! The transfer protocol: files and folders over the streams of one connection.
//!
//! Generic over its streams, so that it is tested without a network. `send` and `receive`
//! are the two halves; who opened the connection does not matter to them. `open` does the
//! opening messages, `quic` has Towline's own streams. The format is documented in `docs/transfer-format.md`.

pub mod caps;
mod claims;
mod cpu;
mod message;
mod open;
mod path;
mod pipe;
mod progress;
mod quic;
mod reason;
mod receive;
mod report;
mod send;
mod source;
mod store;
mod walk;

pub use cpu::CpuMeter;
pub use message::{put_varint, read_varint};
pub use open::{OpenError, Opening, accept, open, read_opening, refuse, stream_kind};
pub use path::{BadPath, RelativePath, printable};
pub use pipe::{LaneWriter, OpenLane};
pub use progress::{Progress, ProgressSnapshot};
pub use quic::{Lanes, QuicLanes, Registration, read_kind};
pub use reason::{Reason, Refusal};
pub use receive::receive;
pub use report::{Ended, Failed, Report, SessionError};
pub use send::{SendEnded, SendPlan, send};
pub use store::{Store, StorePolicy};
pub use walk::Root;

#[cfg(test)]
mod tests;
