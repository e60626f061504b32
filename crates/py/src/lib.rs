//! The native half of the Python package `towline`: drivers, handles and certificates.
//!
//! An asyncio loop drives an endpoint itself: it waits for the descriptors of a `Driver`
//! and gives it turns. Handles call the engine directly; what has to wait returns `None`, and its token is
//! called when it is worth another try. No thread, no task and no runtime is behind it. What people use is
//! in `python/towline`, written in Python over this. Never touched here: names, addresses to look up, tasks.

mod certificate;
mod driver;
mod errors;
mod group;
mod hub;
mod input;
mod listener;
mod operation;
mod recv_stream;
mod send_stream;
mod session;

use pyo3::prelude::*;

/// Drivers, handles and certificates for the package `towline`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("AGAIN", driver::AGAIN)?;
    module.add("WANT_WRITE", driver::WANT_WRITE)?;
    module.add("READY", driver::READY)?;
    module.add("REGISTER", driver::REGISTER)?;
    module.add_class::<certificate::Certificate>()?;
    module.add_class::<certificate::ClientConfig>()?;
    module.add_class::<driver::Driver>()?;
    module.add_class::<listener::Listener>()?;
    module.add_class::<listener::SessionRequest>()?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<recv_stream::RecvStream>()?;
    module.add_class::<send_stream::SendStream>()?;
    module.add_class::<session::Session>()?;
    module.add_function(wrap_pyfunction!(group::bind_group, module)?)?;
    Ok(())
}
