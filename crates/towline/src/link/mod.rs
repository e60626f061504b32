//! What the delta link needs of the system: today the folder under its spool.
//!
//! [`towline_link`] says what is sent and what is durable, without a file in sight; [`FileDisk`] lends its
//! [`Spool`](spool::Spool) a folder.

mod disk;

pub use disk::{FileDisk, FileError};
pub use towline_link::spool;
