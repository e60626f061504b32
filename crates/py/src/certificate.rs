//! [`Certificate`]: who a server is; [`ClientConfig`]: whom a client believes.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyType;
use towline::config::{self, ClientAuth, Identity, Options, ServerConfig, TransportConfig, Trust};
use towline::http3;
use towline::identity::{CertificatePin, PeerIdentity, Pin, certificates_from_pem, validity};
use towline::webtransport;

use crate::errors::Failure;
use crate::transport::Transport;

/// A certificate and its private key.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct Certificate {
    identity: Identity,
    pin: CertificatePin,
}

/// What a certificate says: subject, SHA-256 of itself and of its key, first and last second of its life.
type Inspected = (String, String, String, Option<(u64, u64)>);

impl Certificate {
    fn new(identity: Identity) -> Result<Self, Failure> {
        match identity.certificate_pin() {
            Some(pin) => Ok(Self { identity, pin }),
            None => Err(Failure::value("chain", "it has no certificate")),
        }
    }

    /// A server's configuration that shows it. `alpn` are the application's protocols; without, it is
    /// HTTP/3.
    pub(crate) fn server_config(
        &self,
        alpn: Option<Vec<Vec<u8>>>,
        transport: TransportConfig,
    ) -> Result<ServerConfig, Failure> {
        let options = options(alpn).transport(transport);
        let config = config::server(&self.identity, &ClientAuth::None, &options);
        config.map_err(|error| Failure::value("certificate", error))
    }
}

#[pymethods]
impl Certificate {
    /// One for `names` that browsers take by its hash: P-256, valid for less than 14 days.
    #[classmethod]
    fn generate(cls: &Bound<'_, PyType>, names: Vec<String>) -> PyResult<Self> {
        let made = webtransport::generate_certificate(&names, config::unix_now());
        let made = made.map_err(|error| Failure::value("names", error));
        made.and_then(Self::new)
            .map_err(|failure| failure.raise(cls.py()))
    }

    /// One for `names` from a seed, for tests: the same seed, the same Ed25519 key, whose signatures all
    /// have one length.
    #[classmethod]
    fn from_seed(cls: &Bound<'_, PyType>, names: Vec<String>, seed: [u8; 32]) -> PyResult<Self> {
        let key = Identity::raw_key_from_seed(&seed);
        let made = key.and_then(|key| key.certified_anew(&names, config::unix_now()));
        let made = made.map_err(|error| Failure::value("names", error));
        made.and_then(Self::new)
            .map_err(|failure| failure.raise(cls.py()))
    }

    /// One from PEM: the chain, the server's own first, and its private key.
    #[classmethod]
    fn from_pem(cls: &Bound<'_, PyType>, chain: &[u8], key: &[u8]) -> PyResult<Self> {
        let read = Identity::from_pem(chain, key).map_err(|error| Failure::value("chain", error));
        read.and_then(Self::new)
            .map_err(|failure| failure.raise(cls.py()))
    }

    /// What the first certificate of a chain in PEM says; its private key is not needed.
    #[classmethod]
    fn inspect(cls: &Bound<'_, PyType>, chain: &[u8]) -> PyResult<Inspected> {
        inspected(chain).map_err(|failure| failure.raise(cls.py()))
    }

    /// SHA-256 of the certificate, 64 hexadecimal digits.
    #[getter]
    fn sha256(&self) -> String {
        digits(self.pin)
    }

    /// The chain as PEM.
    #[getter]
    fn certificate_pem(&self) -> String {
        self.identity.certificate_pem().unwrap_or_default()
    }

    /// The private key as PEM. Secret.
    #[getter]
    fn private_key_pem(&self) -> String {
        self.identity.private_key_pem()
    }

    /// First and last second of its life, Unix time.
    #[getter]
    fn validity(&self) -> Option<(u64, u64)> {
        let (from, to) = self.identity.validity()?;
        Some((from.as_secs(), to.as_secs()))
    }

    fn __repr__(&self) -> String {
        format!("Certificate({})", self.pin)
    }
}

fn inspected(chain: &[u8]) -> Result<Inspected, Failure> {
    let read = certificates_from_pem(chain).map_err(|error| Failure::value("chain", error))?;
    match PeerIdentity::from_peer_certificates(Some(&read)) {
        Some(PeerIdentity::X509 {
            certificate,
            key,
            subject,
        }) => {
            let dates = read.first().and_then(validity);
            let dates = dates.map(|(from, to)| (from.as_secs(), to.as_secs()));
            Ok((subject, digits(certificate), digits(key), dates))
        }
        _ => Err(Failure::value("chain", "it is no X.509 certificate")),
    }
}

/// A hash as 64 hexadecimal digits, without the word in front.
fn digits(hash: impl Display) -> String {
    let text = hash.to_string();
    text.rsplit('/').next().unwrap_or_default().to_owned()
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The application's protocols, or HTTP/3.
fn options(alpn: Option<Vec<Vec<u8>>>) -> Options {
    match alpn {
        Some(alpn) => Options::default().alpn(alpn),
        None => Options::new(http3::ALPN),
    }
}

/// Whom a client believes, how it connects, and its memory of servers for the next handshake.
#[pyclass(frozen, module = "towline._native")]
pub(crate) struct ClientConfig {
    /// No other has it.
    pub(crate) number: u64,
    pub(crate) config: config::ClientConfig,
    trust: Trust,
    options: Options,
}

impl ClientConfig {
    /// The same without a memory.
    pub(crate) fn renewed(&self) -> Result<config::ClientConfig, Failure> {
        let config = config::client(&self.trust, None, &self.options);
        config.map_err(|error| Failure::Value(error.to_string()))
    }
}

#[pymethods]
impl ClientConfig {
    /// Believes certificates with one of `pins` (`sha256/…`), else those of the roots in PEM, else those
    /// of the system's. Speaks `alpn`, or HTTP/3.
    #[new]
    #[pyo3(signature = (pins, roots=None, alpn=None, transport=None))]
    fn new(
        py: Python<'_>,
        pins: Vec<String>,
        roots: Option<&[u8]>,
        alpn: Option<Vec<Vec<u8>>>,
        transport: Option<Transport>,
    ) -> PyResult<Self> {
        let build = || {
            let trust = match (&pins[..], roots) {
                ([], Some(pem)) => {
                    let trust = Trust::roots_from_pem(pem);
                    trust.map_err(|error| Failure::value("roots", error))?
                }
                ([], None) => Trust::SystemRoots(rustls_native_certs::load_native_certs().certs),
                (pins, _) => {
                    let read = pins.iter().map(|text| Pin::either(text));
                    let read: Result<Vec<_>, _> = read.collect();
                    let read = read.map_err(|error| Failure::value("pins", error))?;
                    Trust::Pinned(read.into_iter().flatten().collect())
                }
            };
            let transport = match &transport {
                Some(transport) => transport.config()?,
                None => TransportConfig::default(),
            };
            let options = options(alpn).transport(transport);
            let config = config::client(&trust, None, &options);
            let config = config.map_err(|error| Failure::Value(error.to_string()))?;
            Ok(Self {
                number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
                config,
                trust,
                options,
            })
        };
        build().map_err(|failure: Failure| failure.raise(py))
    }
}
