//! What the tests of endpoints have in common.
#![allow(dead_code, reason = "each test program uses a part of this module")]

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use towline::config::{
    self, ClientAuth, ClientConfig, Identity, KeyLogging, Options, ServerConfig, Trust,
};
use towline::identity::Pin;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Options that write no keys, whatever the environment says.
pub(crate) fn options() -> Options {
    let mut options = Options::new("test");
    options.key_log = KeyLogging::Off;
    options
}

/// A server with an identity of its own, and a client that trusts its key.
pub(crate) fn configs(options: &Options) -> (ClientConfig, ServerConfig) {
    let identity = Identity::generate_dev(&["localhost"], config::unix_now()).unwrap();
    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    (
        config::client(&trust, None, options).unwrap(),
        config::server(&identity, &ClientAuth::None, options).unwrap(),
    )
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Fails a test that hangs instead of letting it hang.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(30 * SECOND, future)
        .await
        .expect("nothing happened for 30 s")
}
