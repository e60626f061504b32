//! Keying material for the application when TLS is gone (RFC 8446 §7.5).
//!
//! rustls hands its exporter secret to nobody but a key log, so each session gets one that keeps
//! it, and passes everything on to the log the configuration names. With the secret the session
//! itself, some kilobytes, need not outlive the handshake.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::tls13::{HkdfExpander, OkmBlock};
use rustls::{Error, KeyLog, SupportedCipherSuite, Tls13CipherSuite};

/// The name of the secret in a key log.
const EXPORTER_SECRET: &str = "EXPORTER_SECRET";

/// Longest label that fits HkdfLabel with its prefix.
const MAX_LABEL: usize = 255 - PREFIX.len();
const PREFIX: &[u8] = b"tls13 ";

/// A key log that keeps the exporter secret of its session.
pub(crate) struct SecretKeeper {
    secret: Mutex<Option<OkmBlock>>,
    log: Arc<dyn KeyLog>,
}

impl SecretKeeper {
    pub(crate) fn new(log: Arc<dyn KeyLog>) -> Self {
        Self {
            secret: Mutex::new(None),
            log,
        }
    }

    pub(crate) fn take(&self) -> Option<OkmBlock> {
        self.secret
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl fmt::Debug for SecretKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKeeper").finish_non_exhaustive()
    }
}

impl KeyLog for SecretKeeper {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if label == EXPORTER_SECRET && secret.len() <= OkmBlock::MAX_LEN {
            *self.secret.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(OkmBlock::new(secret));
        }
        if self.log.will_log(label) {
            self.log.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == EXPORTER_SECRET || self.log.will_log(label)
    }
}

/// The exporter of a finished handshake.
pub(crate) struct Exporter {
    suite: &'static Tls13CipherSuite,
    secret: OkmBlock,
}

impl Exporter {
    pub(crate) fn new(suite: SupportedCipherSuite, secret: OkmBlock) -> Option<Self> {
        let suite = suite.tls13()?;
        Some(Self { suite, secret })
    }

    /// As rustls's own, with the same errors.
    pub(crate) fn export(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), Error> {
        if out.is_empty() {
            return Err(Error::General(
                "export_keying_material with zero-length output".to_owned(),
            ));
        }
        let too_much = || Error::General("exporting too much".to_owned());
        let out_len = u16::try_from(out.len()).map_err(|_| too_much())?;
        if label.len() > MAX_LABEL {
            return Err(Error::General("the label is too long".to_owned()));
        }
        let hash = self.suite.common.hash_provider;
        let hkdf = self.suite.hkdf_provider;
        let expander = hkdf.expander_for_okm(&self.secret);
        let mut derived = [0; OkmBlock::MAX_LEN];
        let derived = &mut derived[..expander.hash_len()];
        let empty = hash.hash(&[]);
        let derived_len = derived.len() as u16;
        expand_label(&*expander, derived, derived_len, label, empty.as_ref())?;
        let expander = hkdf.expander_for_okm(&OkmBlock::new(derived));
        derived.fill(0);
        let context = hash.hash(context.unwrap_or(&[]));
        expand_label(&*expander, out, out_len, b"exporter", context.as_ref())
    }
}

/// HKDF-Expand-Label (RFC 8446 §7.1); `context` is a hash.
fn expand_label(
    expander: &dyn HkdfExpander,
    out: &mut [u8],
    out_len: u16,
    label: &[u8],
    context: &[u8],
) -> Result<(), Error> {
    let label_len = (PREFIX.len() + label.len()) as u8;
    let info: [&[u8]; 6] = [
        &out_len.to_be_bytes(),
        &[label_len],
        PREFIX,
        label,
        &[context.len() as u8],
        context,
    ];
    expander
        .expand_slice(&info, out)
        .map_err(|_| Error::General("exporting too much".to_owned()))
}
