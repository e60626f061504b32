//! TLS for QUIC (RFC 9001) over rustls: the one place that names its session types.
//!
//! `TlsSession` moves handshake bytes and yields keys; packet protection lives in
//! `connection::protect`. Key shares and signatures draw from the provider in the
//! configuration handed in, so a seeded provider makes a whole handshake deterministic.

mod exporter;

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::quic::{Connection, KeyChange, Keys, Version};
use rustls::{CipherSuite, HandshakeKind, NamedGroup, PeerMisbehaved, SupportedCipherSuite};
use towline_identity::{PeerIdentity, is_without_certificate};
use towline_wire::{Side, TransportErrorCode};

use crate::error::ConnectError;
use exporter::{Exporter, SecretKeeper};

/// TLS alert unrecognized_name (RFC 6066 §3).
const UNRECOGNIZED_NAME: u8 = 112;

/// TLS alert internal_error (RFC 8446 §6.2).
const INTERNAL_ERROR: u8 = 80;

/// TLS refused something; `code` goes to the peer (RFC 9001 §4.8).
#[derive(Debug)]
pub(crate) struct TlsFailure {
    pub(crate) code: TransportErrorCode,
    pub(crate) what: String,
    /// Data of one encryption level ran on into the next.
    pub(crate) left_over: bool,
}

impl TlsFailure {
    /// Our own configuration is at fault.
    pub(crate) fn internal(error: &rustls::Error) -> Self {
        Self {
            code: TransportErrorCode::crypto(INTERNAL_ERROR),
            what: error.to_string(),
            left_over: false,
        }
    }
}

/// The data of the `number`th PATH_CHALLENGE of a connection whose secret is `key`: nobody else can
/// guess it (RFC 9000 §8.2.1).
pub(crate) fn path_challenge(key: u64, number: u64) -> [u8; 8] {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &key.to_le_bytes());
    let tag = aws_lc_rs::hmac::sign(&key, &number.to_le_bytes());
    let mut data = [0; 8];
    data.copy_from_slice(&tag.as_ref()[..8]);
    data
}

pub(crate) struct TlsSession {
    inner: Connection,
    /// Holds what makes the session dispensable.
    keeper: Arc<SecretKeeper>,
}

/// What is still asked about a session when it is gone.
pub(crate) struct TlsFacts {
    pub(crate) peer_identity: Option<Box<PeerIdentity>>,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) cipher_suite: Option<CipherSuite>,
    pub(crate) key_exchange: Option<NamedGroup>,
    pub(crate) resumed: bool,
    exporter: Exporter,
}

impl TlsFacts {
    pub(crate) fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        self.exporter.export(out, label, context)
    }
}

impl TlsSession {
    /// rustls offers nothing older than TLS 1.3 in QUIC (RFC 9001 §4.2).
    pub(crate) fn client(
        config: &rustls::ClientConfig,
        server_name: &str,
        parameters: Vec<u8>,
    ) -> Result<Self, ConnectError> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| ConnectError::InvalidServerName(server_name.to_owned()))?;
        let keeper = Arc::new(SecretKeeper::new(Arc::clone(&config.key_log)));
        let mut config = config.clone();
        config.key_log = Arc::clone(&keeper) as _;
        let config = Arc::new(config);
        let inner = rustls::quic::ClientConnection::new(config, Version::V1, name, parameters)
            .map_err(|e| ConnectError::Tls(e.to_string()))?;
        Ok(Self {
            inner: inner.into(),
            keeper,
        })
    }

    /// `alpn`, if it is known, is the one protocol that is agreed on.
    pub(crate) fn server(
        config: &rustls::ServerConfig,
        alpn: Option<Vec<u8>>,
        parameters: Vec<u8>,
    ) -> Result<Self, rustls::Error> {
        let keeper = Arc::new(SecretKeeper::new(Arc::clone(&config.key_log)));
        let mut config = config.clone();
        if let Some(alpn) = alpn {
            config.alpn_protocols = vec![alpn];
        }
        config.key_log = Arc::clone(&keeper) as _;
        let config = Arc::new(config);
        let inner = rustls::quic::ServerConnection::new(config, Version::V1, parameters)?;
        Ok(Self {
            inner: inner.into(),
            keeper,
        })
    }

    /// What to keep of a finished session; `None` if it has to stay whole.
    pub(crate) fn facts(&self) -> Option<TlsFacts> {
        let suite = self.inner.negotiated_cipher_suite()?;
        let secret = self.keeper.take()?;
        Some(TlsFacts {
            peer_identity: self.peer_identity().map(Box::new),
            alpn: self.alpn().map(Box::from),
            server_name: self.server_name().map(Box::from),
            cipher_suite: self.cipher_suite(),
            key_exchange: self.key_exchange(),
            resumed: self.is_resumed(),
            exporter: Exporter::new(suite, secret)?,
        })
    }

    /// Handshake bytes from the peer, all of one encryption level.
    pub(crate) fn read(&mut self, data: &[u8]) -> Result<(), TlsFailure> {
        self.inner.read_hs(data).map_err(|e| {
            if is_without_certificate(&e) {
                let name = self.server_name().unwrap_or("no name");
                return TlsFailure {
                    code: TransportErrorCode::crypto(UNRECOGNIZED_NAME),
                    what: format!("this server has no certificate for {name}"),
                    left_over: false,
                };
            }
            TlsFailure {
                code: TransportErrorCode::crypto(
                    self.inner.alert().map_or(INTERNAL_ERROR, u8::from),
                ),
                what: e.to_string(),
                left_over: e == PeerMisbehaved::KeyEpochWithPendingFragment.into(),
            }
        })
    }

    /// Handshake bytes for the peer, of the level before the key change returned.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) -> Option<KeyChange> {
        self.inner.write_hs(out)
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    pub(crate) fn peer_parameters(&self) -> Option<&[u8]> {
        self.inner.quic_transport_parameters()
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.inner.alpn_protocol()
    }

    pub(crate) fn peer_identity(&self) -> Option<PeerIdentity> {
        PeerIdentity::from_peer_certificates(self.inner.peer_certificates())
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.inner {
            Connection::Server(server) => server.server_name(),
            Connection::Client(_) => None,
        }
    }

    pub(crate) fn cipher_suite(&self) -> Option<CipherSuite> {
        self.inner
            .negotiated_cipher_suite()
            .map(|s| SupportedCipherSuite::suite(&s))
    }

    pub(crate) fn key_exchange(&self) -> Option<NamedGroup> {
        self.inner.negotiated_key_exchange_group().map(|g| g.name())
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.inner.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        self.inner
            .export_keying_material(out, label, context)
            .map(|_| ())
    }
}

/// Keys of Initial packets (RFC 9001 §5.2).
pub(crate) fn initial_keys(
    provider: &rustls::crypto::CryptoProvider,
    dcid: &[u8],
    side: Side,
) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    towline_identity::initial_suite(provider).keys(dcid, side, Version::V1)
}

/// The Retry integrity tag over a pseudo-packet (RFC 9001 §5.8).
pub(crate) fn retry_integrity_tag(pseudo_packet: &[u8]) -> Option<[u8; 16]> {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    const KEY: [u8; 16] = [
        0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8,
        0x4e,
    ];
    const NONCE: [u8; 12] = [
        0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
    ];
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &KEY).ok()?);
    let tag = key
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(NONCE),
            Aad::from(pseudo_packet),
            &mut [],
        )
        .ok()?;
    tag.as_ref().try_into().ok()
}
