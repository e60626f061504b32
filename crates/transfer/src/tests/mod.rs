//! The transfer protocol over in-memory streams: both halves, and hostile peers by hand.

mod folders;
mod formats;
mod hostile;
mod limit;
mod sessions;
mod world;
