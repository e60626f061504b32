//! Which ciphers and key exchange groups are offered, and in which order.
//!
//! Users name them in flags; `config` and `quic` take the resulting `CryptoProvider`. rustls's own
//! defaults are not used: they begin with AES-256 and decide the first flight's size by a feature.

use std::fmt;
use std::str::FromStr;

use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{CipherSuite, SupportedCipherSuite};

use crate::error::PreferenceError;

/// An AEAD of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256, `aes128gcm`.
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384, `aes256gcm`.
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256, `chacha20`.
    ChaCha20,
}

impl Cipher {
    const fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "aes128gcm",
            Cipher::Aes256Gcm => "aes256gcm",
            Cipher::ChaCha20 => "chacha20",
        }
    }

    fn suite(self) -> SupportedCipherSuite {
        match self {
            Cipher::Aes128Gcm => TLS13_AES_128_GCM_SHA256,
            Cipher::Aes256Gcm => TLS13_AES_256_GCM_SHA384,
            Cipher::ChaCha20 => TLS13_CHACHA20_POLY1305_SHA256,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Cipher {
    type Err = PreferenceError;

    fn from_str(text: &str) -> Result<Cipher, PreferenceError> {
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20]
            .into_iter()
            .find(|cipher| cipher.name() == text)
            .ok_or_else(|| PreferenceError::UnknownCipher(text.to_owned()))
    }
}

/// A key exchange group of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyExchange {
    /// X25519 with ML-KEM-768 (post-quantum hybrid), `x25519mlkem768`. A client's first flight
    /// then fills two datagrams.
    X25519MlKem768,
    /// X25519, `x25519`.
    X25519,
    /// NIST P-256, `p256`.
    P256,
}

impl KeyExchange {
    const fn name(self) -> &'static str {
        match self {
            KeyExchange::X25519MlKem768 => "x25519mlkem768",
            KeyExchange::X25519 => "x25519",
            KeyExchange::P256 => "p256",
        }
    }

    fn group(self) -> &'static dyn SupportedKxGroup {
        match self {
            KeyExchange::X25519MlKem768 => kx_group::X25519MLKEM768,
            KeyExchange::X25519 => kx_group::X25519,
            KeyExchange::P256 => kx_group::SECP256R1,
        }
    }
}

impl fmt::Display for KeyExchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for KeyExchange {
    type Err = PreferenceError;

    fn from_str(text: &str) -> Result<KeyExchange, PreferenceError> {
        [
            KeyExchange::X25519MlKem768,
            KeyExchange::X25519,
            KeyExchange::P256,
        ]
        .into_iter()
        .find(|group| group.name() == text)
        .ok_or_else(|| PreferenceError::UnknownKeyExchange(text.to_owned()))
    }
}

/// The ciphers to offer, best first; never empty. Text form: names joined by commas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CipherPreference(Vec<Cipher>);

impl CipherPreference {
    /// These ciphers and no others, best first.
    pub fn new(ciphers: &[Cipher]) -> Result<CipherPreference, PreferenceError> {
        distinct(ciphers).map(CipherPreference)
    }

    /// This cipher alone.
    pub fn only(cipher: Cipher) -> CipherPreference {
        CipherPreference(vec![cipher])
    }

    /// The product's order: AES-128-GCM first where the CPU has AES, ChaCha20 first where not.
    pub fn product(aes_hardware: bool) -> CipherPreference {
        CipherPreference(if aes_hardware {
            vec![Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20]
        } else {
            vec![Cipher::ChaCha20, Cipher::Aes128Gcm, Cipher::Aes256Gcm]
        })
    }

    /// The ciphers, best first.
    pub fn as_slice(&self) -> &[Cipher] {
        &self.0
    }
}

/// [`CipherPreference::product`] for this CPU.
impl Default for CipherPreference {
    fn default() -> CipherPreference {
        CipherPreference::product(cpu_has_aes())
    }
}

impl From<Cipher> for CipherPreference {
    fn from(cipher: Cipher) -> CipherPreference {
        CipherPreference::only(cipher)
    }
}

impl fmt::Display for CipherPreference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(formatter, &self.0)
    }
}

impl FromStr for CipherPreference {
    type Err = PreferenceError;

    fn from_str(text: &str) -> Result<CipherPreference, PreferenceError> {
        parse_list(text).map(CipherPreference)
    }
}

/// The key exchange groups to offer, best first; never empty. Text form: names joined by commas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyExchangePreference(Vec<KeyExchange>);

impl KeyExchangePreference {
    /// These groups and no others, best first.
    pub fn new(groups: &[KeyExchange]) -> Result<KeyExchangePreference, PreferenceError> {
        distinct(groups).map(KeyExchangePreference)
    }

    /// This group alone.
    pub fn only(group: KeyExchange) -> KeyExchangePreference {
        KeyExchangePreference(vec![group])
    }

    /// The groups, best first. A client sends a share for the first, and for X25519 as well when
    /// the first is X25519MLKEM768 and X25519 is in the list.
    pub fn as_slice(&self) -> &[KeyExchange] {
        &self.0
    }
}

/// X25519MLKEM768, then X25519, then P-256.
impl Default for KeyExchangePreference {
    fn default() -> KeyExchangePreference {
        KeyExchangePreference(vec![
            KeyExchange::X25519MlKem768,
            KeyExchange::X25519,
            KeyExchange::P256,
        ])
    }
}

impl From<KeyExchange> for KeyExchangePreference {
    fn from(group: KeyExchange) -> KeyExchangePreference {
        KeyExchangePreference::only(group)
    }
}

impl fmt::Display for KeyExchangePreference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(formatter, &self.0)
    }
}

impl FromStr for KeyExchangePreference {
    type Err = PreferenceError;

    fn from_str(text: &str) -> Result<KeyExchangePreference, PreferenceError> {
        parse_list(text).map(KeyExchangePreference)
    }
}

/// The aws-lc provider with exactly these ciphers and groups, in this order.
pub fn provider(ciphers: &CipherPreference, groups: &KeyExchangePreference) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: ciphers.0.iter().map(|cipher| cipher.suite()).collect(),
        kx_groups: groups.0.iter().map(|group| group.group()).collect(),
        ..aws_lc_rs::default_provider()
    }
}

/// The suite for Initial packets, AES-128-GCM whatever is negotiated later (RFC 9001 §5.2).
///
/// Taken from `provider` when it is there (a test's provider may replace packet protection),
/// from aws-lc otherwise, as when ChaCha20 alone is offered.
/// Every suite here has its header protection (RFC 9001 §5.4.1).
pub fn initial_suite(provider: &CryptoProvider) -> rustls::quic::Suite {
    let quic_suite = |suite: &SupportedCipherSuite| {
        suite
            .tls13()
            .filter(|tls13| tls13.common.suite == CipherSuite::TLS13_AES_128_GCM_SHA256)
            .and_then(|tls13| tls13.quic_suite())
    };
    provider
        .cipher_suites
        .iter()
        .find_map(quic_suite)
        .or_else(|| quic_suite(&TLS13_AES_128_GCM_SHA256))
        .expect("aws-lc's AES-128-GCM suite has QUIC keys")
}

/// Whether this CPU multiplies and encrypts for AES-GCM in hardware.
pub fn cpu_has_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
    }
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

fn distinct<T: Copy + PartialEq + fmt::Display>(items: &[T]) -> Result<Vec<T>, PreferenceError> {
    let mut out: Vec<T> = Vec::with_capacity(items.len());
    for item in items {
        if out.contains(item) {
            return Err(PreferenceError::Repeated(item.to_string()));
        }
        out.push(*item);
    }
    if out.is_empty() {
        return Err(PreferenceError::Empty);
    }
    Ok(out)
}

fn parse_list<T>(text: &str) -> Result<Vec<T>, PreferenceError>
where
    T: Copy + PartialEq + fmt::Display + FromStr<Err = PreferenceError>,
{
    if text.trim().is_empty() {
        return Err(PreferenceError::Empty);
    }
    let items: Vec<T> = text
        .split(',')
        .map(|name| name.trim().parse())
        .collect::<Result<_, _>>()?;
    distinct(&items)
}

fn write_list<T: fmt::Display>(formatter: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            formatter.write_str(",")?;
        }
        item.fmt(formatter)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
