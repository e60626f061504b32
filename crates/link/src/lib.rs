//! The delta link: telemetry over bad links.
//!
//! A [`Sender`](sender::Sender) takes records and gives messages, a [`Receiver`](receiver::Receiver) takes the
//! messages and gives the records, whatever is lost, late or comes twice. [`codec`] turns batches of JSON
//! objects into few bytes and back, [`spool`] keeps records on a disk. Nothing here touches a socket, a clock, a thread or a file.
#![forbid(unsafe_code)]

mod alarms;
pub mod carriage;
pub mod codec;
mod delta;
mod live;
mod live_state;
mod message;
mod outgoing;
pub mod receiver;
mod reduce;
pub mod sender;
pub mod spool;

use std::time::Duration;

pub use alarms::PathPatterns;
pub use delta::{MAX_PARTS, named_by_source, timestamp};
pub use live::{LiveFilter, MAX_LIVE_NAMES};
pub use live_state::{LiveState, MAX_LIVE_RECORDS, MAX_LIVE_WAITING};
pub use reduce::{MAX_REDUCED, Reducer, Reduction};
/// Sets of sequence numbers.
pub use towline_wire::RangeSet;

pub use message::{Hello, MAX_CONTROL, MAX_NAME, MalformedMessage, VERSION};

/// The receiver tells what it decoded after so long at the latest.
pub const REPORT_AFTER: Duration = Duration::from_secs(1);
