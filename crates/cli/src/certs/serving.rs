//! [`Serving`]: what a server shows as it runs.

use std::sync::Arc;

use towline::config::{Certificates, Identity};

/// What a server shows, and what of it is good for browsers.
pub(crate) struct Serving {
    /// At the start.
    pub(crate) identity: Identity,
    /// What is shown as the server runs; `None` for a raw key, which has no end.
    pub(crate) certificates: Option<Certificates>,
    pub(crate) pins: CertificatePins,
}

/// Pins of the certificates that browsers may be shown now and next; none for a raw key.
pub(crate) type CertificatePins = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What the pins of these are, as everybody writes them.
pub(super) fn pins<'a>(identities: impl IntoIterator<Item = &'a Identity>) -> Vec<String> {
    let pins = identities.into_iter().filter_map(Identity::certificate_pin);
    pins.map(|pin| pin.to_string()).collect()
}
