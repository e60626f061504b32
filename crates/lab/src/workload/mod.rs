//! What applications do on a connection, and the truth about it.
//!
//! `plan` is the script of one connection, drawn by the swarm; `ledger` knows what was written,
//! finished, reset and stopped, so that every read can be judged (I1); `app` is one end's
//! application, which acts on engine events only, so that a lost wake-up shows as a stall;
//! `conversation` is both ends together and judges why they ended. Nothing here knows links.

mod app;
mod conversation;
mod ledger;
mod pattern;
mod plan;

pub use app::App;
pub use conversation::{Conversation, End};
pub use ledger::{Half, Ledger, Outcome};
pub(crate) use pattern::prepare;
pub use plan::{ClosePlan, ConversationPlan, DatagramPlan, EndPlan, HalfPlan, StreamPlan};
