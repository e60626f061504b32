//! What can go wrong, one small enum per operation: each message says whose fault it is and what
//! to do next. No message contains key material. That of a pin's text lies beside the pins.

use std::fmt;

use rustls::{CertificateError, OtherError};

use crate::pin::{CertificatePin, KeyPin, Pin};

/// Why certificates could not be read from bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificatesError {
    /// The bytes are not PEM.
    #[error("the certificates are not valid PEM: {0}; check that the file is complete")]
    Pem(String),
    /// No certificate at all.
    #[error("no certificate found; expected at least one `BEGIN CERTIFICATE` section")]
    Empty,
    /// A certificate is not X.509, or not one that TLS can use.
    #[error("certificate number {position} is not a usable X.509 certificate; export it again")]
    Unreadable {
        /// Place in the input, from 1.
        position: usize,
    },
}

/// Why an identity of ours could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The chain could not be read.
    #[error(transparent)]
    Certificates(#[from] CertificatesError),
    /// The private key is not PEM, or there is none in it.
    #[error(
        "no private key could be read from the PEM; expected a `BEGIN PRIVATE KEY` section \
         (encrypted keys must be decrypted first)"
    )]
    NoPrivateKey,
    /// The private key is of a type or encoding that TLS 1.3 cannot use here.
    #[error("the private key cannot be used; use an Ed25519, P-256, P-384 or RSA key in PKCS #8")]
    UnsupportedKey,
    /// The key belongs to another certificate.
    #[error(
        "the private key does not belong to the first certificate of the chain; check the pair"
    )]
    KeyMismatch,
}

/// Why a key or certificate could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A name for the certificate is neither a DNS name nor an IP address.
    #[error("`{0}` is neither a DNS name nor an IP address; correct the name")]
    BadName(String),
    /// The dates lie outside the years 1970 to 9999.
    #[error("the certificate's dates lie after the year 9999; check the clock and the lifetime")]
    DateOutOfRange,
    /// aws-lc or the encoder refused; nothing the caller gave is at fault.
    #[error("making the key or certificate failed inside the cryptographic library: {0}")]
    Crypto(String),
}

/// Why a preference for ciphers or key exchange groups is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PreferenceError {
    /// Not the name of a cipher.
    #[error("unknown cipher `{0}`; use aes128gcm, aes256gcm or chacha20")]
    UnknownCipher(String),
    /// Not the name of a key exchange group.
    #[error("unknown key exchange `{0}`; use x25519mlkem768, x25519 or p256")]
    UnknownKeyExchange(String),
    /// The same name twice.
    #[error("`{0}` is named twice; name each choice once, best first")]
    Repeated(String),
    /// An empty list.
    #[error("the list is empty; name at least one choice")]
    Empty,
}

/// Why a rustls configuration could not be made. Always the caller's input, never the peer's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Raw keys on one side and X.509 on the other.
    #[error(
        "raw public keys and X.509 are mixed; our identity and the rule for the peer must be of \
         one kind (run a second listener for the other)"
    )]
    MixedKinds,
    /// No root certificate to trust.
    #[error("no root certificate is trusted, so no peer could be; give a CA file or pins")]
    NoRoots,
    /// A root certificate cannot serve as one.
    #[error("root certificate number {position} cannot be used as a trust anchor; export it again")]
    BadRoot {
        /// Place in the list, from 1.
        position: usize,
    },
    /// An empty list of pins.
    #[error("the list of pins is empty, so no peer could be accepted; give at least one pin")]
    NoPins,
    /// A server without a certificate to show.
    #[error("the list of certificates is empty, so nobody could be served; give at least one")]
    NoCertificates,
    /// A certificate for clients that ask for its name, and it has no DNS name.
    #[error(
        "certificate number {position} has no DNS name, and clients that ask for none are shown \
         others; issue it for a name, or put it among the default ones"
    )]
    CertificateWithoutName {
        /// Place in the list, from 1.
        position: usize,
    },
    /// A protocol name of 0 or more than 255 bytes.
    #[error("protocol number {position} of the ALPN list must have 1 to 255 bytes (RFC 7301 §3.1)")]
    BadAlpn {
        /// Place in the list, from 1.
        position: usize,
    },
    /// 0-RTT without stored sessions.
    #[error("early data needs resumption; keep sessions in memory or switch early data off")]
    EarlyDataWithoutResumption,
    /// The provider cannot do TLS 1.3.
    #[error("the cryptographic provider does not fit TLS 1.3: {0}")]
    Provider(rustls::Error),
    /// rustls refused the roots for client authentication.
    #[error("the rule for client certificates was refused: {0}")]
    Verifier(String),
}

/// Why our pins refused the peer. Inside a `rustls::Error`; take it out with
/// [`PeerRejected::from_error`]. The peer sees the alert certificate_unknown.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerRejected {
    /// No pin matches the certificate, nor its key.
    #[error(
        "the peer's certificate is {certificate} with the key {key}, and none of our pins names \
         either{}; if the peer has a new certificate, get its pin from the peer's owner",
        Expected::told(.expected)
    )]
    CertificateNotPinned {
        /// What we were given; `None` for a list that changes.
        expected: Option<Expected>,
        /// Hash of the certificate that was presented.
        certificate: CertificatePin,
        /// Hash of its public key.
        key: KeyPin,
    },
    /// No pin matches the raw public key.
    #[error(
        "the peer's raw public key is {key}, and none of our pins names it{}; if the peer has a \
         new key, get its pin from the peer's owner",
        Expected::told(.expected)
    )]
    KeyNotPinned {
        /// What we were given; `None` for a list that changes.
        expected: Option<Expected>,
        /// Hash of the key that was presented.
        key: KeyPin,
    },
}

/// The pins that a peer should have had one of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The first.
    pub first: Pin,
    /// Whether there are others, with another hash.
    pub has_others: bool,
}

impl Expected {
    /// What the first of `pins` says of them all; `None` if there are none.
    pub(crate) fn of(pins: impl IntoIterator<Item = Pin>) -> Option<Expected> {
        let mut pins = pins.into_iter();
        let first = pins.next()?;
        // Both readings of one text have its hash.
        let has_others = pins.any(|pin| pin.as_bytes() != first.as_bytes());
        Some(Expected { first, has_others })
    }

    fn told(expected: &Option<Expected>) -> String {
        match expected {
            None => String::new(),
            Some(Expected { first, has_others }) => {
                let others = if *has_others { " or others" } else { "" };
                format!(" (we expect {first}{others})")
            }
        }
    }
}

impl PeerRejected {
    /// The reason inside a handshake error, if our pins were the reason.
    pub fn from_error(error: &rustls::Error) -> Option<PeerRejected> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
                inner.downcast_ref::<PeerRejected>().copied()
            }
            _ => None,
        }
    }
}

/// As `Display`, because rustls prints the inner error of `CertificateError::Other` by `Debug`.
impl fmt::Debug for PeerRejected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
