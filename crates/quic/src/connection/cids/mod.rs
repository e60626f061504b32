//! Connection IDs: those we issued (`local`) and those the peer issued (`remote`).

mod local;
mod remote;

pub(crate) use local::LocalCids;
pub(crate) use remote::{MAX_REMOTE_CIDS, RemoteCids};
