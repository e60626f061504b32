//! Cipher suites that count the keys made from them.
//!
//! A [`Witness`] belongs to one connection. It wraps rustls's TLS 1.3 suites so
//! that each `quic::Algorithm` counts its `packet_key` calls: the suite that
//! was called is the negotiated one, and the calls beyond the handshake's are
//! key updates. It changes no byte on the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Suite};
use rustls::{CipherSuite, SupportedCipherSuite, Tls13CipherSuite};

/// Packet keys quinn makes before any update: handshake, first 1-RTT and the
/// 1-RTT keys it keeps ready, two directions each.
const KEYS_BEFORE_UPDATE: u64 = 6;
/// Packet keys of the Initial space before any Retry.
const INITIAL_KEYS: u64 = 2;

/// Counts the keys of one connection.
pub(crate) struct Witness {
    suites: Vec<(&'static Tls13CipherSuite, &'static Counting)>,
    initial: &'static Counting,
    initial_suite: &'static Tls13CipherSuite,
}

/// A QUIC algorithm and the number of packet keys made with it.
struct Counting {
    inner: &'static dyn Algorithm,
    made: AtomicU64,
}

impl Witness {
    /// A witness over all of aws-lc-rs's TLS 1.3 suites, or ChaCha20 alone.
    ///
    /// rustls wants `'static` suites, so each witness leaks a few hundred
    /// bytes; a driver serves a handful of connections.
    pub(crate) fn new(chacha20_only: bool) -> Witness {
        let mut suites = Vec::new();
        for suite in aws_lc_rs::DEFAULT_CIPHER_SUITES {
            let Some(suite) = suite.tls13() else {
                continue;
            };
            let chacha20 = suite.common.suite == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
            if let Some(quic) = suite.quic
                && (chacha20 || !chacha20_only)
            {
                let counting = Counting::leak(quic);
                let wrapped: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite {
                    common: rustls::crypto::CipherSuiteCommon {
                        suite: suite.common.suite,
                        hash_provider: suite.common.hash_provider,
                        confidentiality_limit: suite.common.confidentiality_limit,
                    },
                    hkdf_provider: suite.hkdf_provider,
                    aead_alg: suite.aead_alg,
                    quic: Some(counting),
                }));
                suites.push((wrapped, counting));
            }
        }
        let initial_suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256
            .tls13()
            .expect("the constant names a TLS 1.3 suite");
        let initial = initial_suite
            .quic
            .expect("aws-lc-rs builds AES-128-GCM with QUIC support");
        Witness {
            suites,
            initial: Counting::leak(initial),
            initial_suite,
        }
    }

    /// aws-lc-rs with this witness's suites.
    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::new(CryptoProvider {
            cipher_suites: self
                .suites
                .iter()
                .map(|(suite, _)| SupportedCipherSuite::Tls13(suite))
                .collect(),
            ..aws_lc_rs::default_provider()
        })
    }

    /// AES-128-GCM for Initial packets (RFC 9001 §5.2), whatever is offered.
    pub(crate) fn initial(&self) -> Suite {
        Suite {
            suite: self.initial_suite,
            quic: self.initial,
        }
    }

    /// IANA name of the negotiated suite; empty before the handshake.
    pub(crate) fn cipher(&self) -> String {
        let used = self.suites.iter().find(|(_, counting)| counting.made() > 0);
        match used {
            // rustls writes TLS13_…; IANA's names say TLS_….
            Some((suite, _)) => format!("{:?}", suite.common.suite).replacen("TLS13", "TLS", 1),
            None => String::new(),
        }
    }

    /// Key updates so far, whoever began them.
    pub(crate) fn key_updates(&self) -> u64 {
        let made: u64 = self
            .suites
            .iter()
            .map(|(_, counting)| counting.made())
            .sum();
        made.saturating_sub(KEYS_BEFORE_UPDATE) / 2
    }

    /// Whether a client made its Initial keys anew, as a Retry demands
    /// (RFC 9001 §5.2).
    pub(crate) fn retried(&self) -> bool {
        self.initial.made() > INITIAL_KEYS
    }
}

impl Counting {
    fn leak(inner: &'static dyn Algorithm) -> &'static Counting {
        Box::leak(Box::new(Counting {
            inner,
            made: AtomicU64::new(0),
        }))
    }

    fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

impl Algorithm for Counting {
    fn packet_key(
        &self,
        key: rustls::crypto::cipher::AeadKey,
        iv: rustls::crypto::cipher::Iv,
    ) -> Box<dyn PacketKey> {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.inner.packet_key(key, iv)
    }

    fn header_protection_key(
        &self,
        key: rustls::crypto::cipher::AeadKey,
    ) -> Box<dyn HeaderProtectionKey> {
        self.inner.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.inner.aead_key_len()
    }
}
