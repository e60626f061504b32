//! A server's certificate that is made anew, under the same key, before it ends.
//!
//! A pin of the key outlives its certificates, so that these can be as short as browsers want them
//! (14 days) while what a client was given stays good. [`renewing_server_config`] makes rustls ask
//! here at every handshake; a renewal costs one signature, and happens once a week. Nothing is
//! written: who keeps certificates is told of each new one.
//!
//! [`renewing_server_config`]: crate::renewing_server_config

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;

use crate::generate::DEV_LIFETIME;
use crate::identity::Identity;

/// A certificate with less than this left is made anew: half of its life.
pub const RENEW_BEFORE: Duration = Duration::from_secs(DEV_LIFETIME.as_secs() / 2);

/// What new certificates are for, and who wants to know of them.
#[derive(Clone)]
#[non_exhaustive]
pub struct Renewal {
    /// DNS names and addresses in them.
    pub names: Vec<String>,
    /// Is told of each new certificate, from within a handshake: must not block.
    pub renewed: Arc<dyn Fn(&Identity) + Send + Sync>,
}

impl Renewal {
    /// Certificates for these names; `renewed` is told of each.
    pub fn new(names: Vec<String>, renewed: Arc<dyn Fn(&Identity) + Send + Sync>) -> Renewal {
        Renewal { names, renewed }
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Renewal")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// Whether our certificate should be made anew at `now`: it ends soon, or has not begun (the
    /// clock was set back). Never for a raw key.
    pub fn is_renewal_due(&self, now: UnixTime) -> bool {
        self.validity().is_some_and(|(begin, end)| {
            now < begin || now.as_secs() + RENEW_BEFORE.as_secs() >= end.as_secs()
        })
    }
}

/// Shows the certificate of the day.
#[derive(Debug)]
pub(crate) struct RenewingCertificate {
    renewal: Renewal,
    time: Arc<dyn TimeProvider>,
    current: RwLock<Identity>,
}

impl RenewingCertificate {
    pub(crate) fn new(identity: &Identity, renewal: Renewal, time: Arc<dyn TimeProvider>) -> Self {
        Self {
            renewal,
            time,
            current: RwLock::new(identity.clone()),
        }
    }

    fn current(&self) -> Identity {
        let current = {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            current.clone()
        };
        match self.time.current_time() {
            Some(now) if current.is_renewal_due(now) => self.renew(now),
            _ => current,
        }
    }

    /// One thread makes it, the others wait for the few dozen microseconds and take it.
    fn renew(&self, now: UnixTime) -> Identity {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.is_renewal_due(now)
            && let Ok(new) = current.certified_anew(&self.renewal.names, now)
        {
            (self.renewal.renewed)(&new);
            *current = new;
        }
        // Where none can be made, the old one is shown: the peer says what is wrong with it.
        current.clone()
    }
}

impl ResolvesServerCert for RenewingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current().certified())
    }
}
