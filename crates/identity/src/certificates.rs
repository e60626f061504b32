//! The certificates of a server that has several: by the name a client asks for, and by date.
//!
//! [`certificates_server_config`] makes rustls ask here at every full handshake. Of those that fit,
//! the one that became valid last is shown, so that a certificate which is added ahead of its time
//! takes over when that comes, while pins of the one before stay good until it ends. The whole list
//! is replaced at any time through [`Certificates`]; handshakes under way go on as they began.
//!
//! [`certificates_server_config`]: crate::certificates_server_config

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;

use crate::error::ConfigError;
use crate::identity::{Identity, IdentityKind};
use crate::x509;

/// What a server has to show, and to whom.
///
/// ```
/// # use towline_identity::{CertificateList, Identity};
/// # fn list(shop: Identity, mail: Identity) -> CertificateList {
/// CertificateList::new([shop.clone(), mail]).default_identities([shop])
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CertificateList {
    named: Vec<Identity>,
    default: Option<Vec<Identity>>,
}

impl CertificateList {
    /// Each is shown to clients that ask for a DNS name in it, `*.` standing for one label; the whole
    /// name comes first, unless only the other is valid. Clients that ask for no name (they connect to an
    /// address), or for one that none has, are shown one of these, too, unless others are
    /// [set](Self::default_identities) for them.
    pub fn new(identities: impl IntoIterator<Item = Identity>) -> CertificateList {
        CertificateList {
            named: identities.into_iter().collect(),
            default: None,
        }
    }

    /// Who is shown to clients that ask for no name, or for one that no certificate has. With none
    /// at all such clients are refused: the peer is told `unrecognized_name`.
    #[must_use]
    pub fn default_identities(
        mut self,
        identities: impl IntoIterator<Item = Identity>,
    ) -> CertificateList {
        self.default = Some(identities.into_iter().collect());
        self
    }
}

impl From<Identity> for CertificateList {
    fn from(identity: Identity) -> CertificateList {
        CertificateList::new([identity])
    }
}

/// The certificates a server shows, for as long as it runs. Clones are the same.
#[derive(Clone)]
pub struct Certificates {
    inner: Arc<Inner>,
}

struct Inner {
    shown: RwLock<Shown>,
    refused: AtomicU64,
}

impl Certificates {
    /// # Errors
    /// As [`set`](Self::set).
    pub fn new(list: impl Into<CertificateList>) -> Result<Certificates, ConfigError> {
        let shown = Shown::new(list.into())?;
        Ok(Certificates {
            inner: Arc::new(Inner {
                shown: RwLock::new(shown),
                refused: AtomicU64::new(0),
            }),
        })
    }

    /// Handshakes that begin from now on are shown certificates of `list`, and none of those before.
    /// Connections, and sessions that are resumed, are not touched.
    ///
    /// # Errors
    /// When the list is empty, has a raw key in it, or has a certificate that nobody could be shown;
    /// nothing was changed.
    pub fn set(&self, list: impl Into<CertificateList>) -> Result<(), ConfigError> {
        let new = Shown::new(list.into())?;
        let shown = self.inner.shown.write();
        let mut shown = shown.unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *shown, new);
        drop(shown);
        // Keys are dropped when nobody waits for the lock.
        drop(old);
        Ok(())
    }

    /// Handshakes refused because there was no certificate for the name the client asked for.
    pub fn refused(&self) -> u64 {
        self.inner.refused.load(Ordering::Relaxed)
    }

    /// Who is shown to a client that asks for `name` at `now`; `None` if it is refused.
    pub fn identity_for(&self, name: Option<&str>, now: UnixTime) -> Option<Identity> {
        let shown = self.inner.shown.read();
        let shown = shown.unwrap_or_else(PoisonError::into_inner);
        shown.pick(name, Some(now)).cloned()
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Certificates")
            .field("refused", &self.refused())
            .finish_non_exhaustive()
    }
}

/// A list in the order in which handshakes ask.
struct Shown {
    by_name: HashMap<String, Vec<Dated>>,
    default: Vec<Dated>,
}

struct Dated {
    identity: Identity,
    begin: u64,
    end: u64,
}

impl Shown {
    fn new(list: CertificateList) -> Result<Shown, ConfigError> {
        let CertificateList { named, default } = list;
        let must_have_names = default.is_some();
        let default = default.unwrap_or_else(|| named.clone());
        if named.is_empty() && default.is_empty() {
            return Err(ConfigError::NoCertificates);
        }
        let mut by_name: HashMap<String, Vec<Dated>> = HashMap::new();
        for (index, identity) in named.iter().enumerate() {
            let dated = Dated::new(identity)?;
            let leaf = identity.certificate_chain().first();
            let names = leaf.map_or_else(Vec::new, |leaf| x509::dns_names(leaf));
            if names.is_empty() && must_have_names {
                let position = index + 1;
                return Err(ConfigError::CertificateWithoutName { position });
            }
            for name in names {
                let name = normal(name);
                by_name.entry(name).or_default().push(dated.clone());
            }
        }
        let mut default = default
            .iter()
            .map(Dated::new)
            .collect::<Result<Vec<_>, _>>()?;
        let newest_first = |dated: &Dated| Reverse(dated.begin);
        by_name
            .values_mut()
            .for_each(|all| all.sort_by_key(newest_first));
        default.sort_by_key(newest_first);
        Ok(Shown { by_name, default })
    }

    fn pick(&self, name: Option<&str>, now: Option<UnixTime>) -> Option<&Identity> {
        let name = name.map(normal);
        let name = name.as_deref();
        let exact = name.and_then(|name| self.by_name.get(name));
        let parent = name.and_then(|name| name.split_once('.'));
        let wildcard = parent.and_then(|(_, parent)| self.by_name.get(&format!("*.{parent}")));
        let is_named = exact.is_some() || wildcard.is_some();
        let default = (!is_named).then_some(&self.default);
        let candidates = || [exact, wildcard, default].into_iter().flatten().flatten();
        let now = now.map(|now| now.as_secs());
        let valid = candidates().find(|d| now.is_none_or(|now| (d.begin..=d.end).contains(&now)));
        // Where none is valid, the peer says what is wrong with the one that ended last.
        let shown = valid.or_else(|| candidates().max_by_key(|dated| dated.end));
        shown.map(|dated| &dated.identity)
    }
}

impl Clone for Dated {
    fn clone(&self) -> Dated {
        Dated {
            identity: self.identity.clone(),
            ..*self
        }
    }
}

impl Dated {
    fn new(identity: &Identity) -> Result<Dated, ConfigError> {
        if identity.kind() != IdentityKind::X509 {
            return Err(ConfigError::MixedKinds);
        }
        let (begin, end) = match identity.validity() {
            Some((begin, end)) => (begin.as_secs(), end.as_secs()),
            // A certificate that TLS can use and whose dates are beyond us.
            None => (0, u64::MAX),
        };
        Ok(Dated {
            identity: identity.clone(),
            begin,
            end,
        })
    }
}

/// DNS names are compared without regard to case, and the root's dot says nothing.
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Whether a server's handshake failed because its resolver had no certificate to show. rustls has no
/// error of its own for it, and tells the peer `access_denied`.
pub fn is_without_certificate(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::General(what) if what == "no server certificate chain resolved")
}

/// What rustls asks.
#[derive(Debug)]
pub(crate) struct CertificatesByName {
    pub(crate) certificates: Certificates,
    pub(crate) time: Arc<dyn TimeProvider>,
}

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let inner = &self.certificates.inner;
        let now = self.time.current_time();
        let shown = inner.shown.read().unwrap_or_else(PoisonError::into_inner);
        let certified = shown
            .pick(hello.server_name(), now)
            .map(Identity::certified);
        if certified.is_none() {
            inner.refused.fetch_add(1, Ordering::Relaxed);
        }
        certified
    }
}

#[cfg(test)]
mod tests;
