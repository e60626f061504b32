//! Traffic keys in the form that a record layer takes, ours or the kernel's, and where the next
//! ones come from.

use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{AlertDescription, ConnectionTrafficSecrets, ExtractedSecrets};

use crate::error::SessionError;
use crate::limits::BlockBudget;

/// The key of one direction.
pub enum CipherKeys {
    /// TLS_AES_128_GCM_SHA256.
    Aes128Gcm {
        /// Key.
        key: [u8; 16],
        /// Initialization vector; each record's nonce is this xor its number.
        iv: [u8; 12],
    },
    /// TLS_AES_256_GCM_SHA384.
    Aes256Gcm {
        /// Key.
        key: [u8; 32],
        /// Initialization vector.
        iv: [u8; 12],
    },
    /// TLS_CHACHA20_POLY1305_SHA256.
    ChaCha20Poly1305 {
        /// Key.
        key: [u8; 32],
        /// Initialization vector.
        iv: [u8; 12],
    },
}

impl fmt::Debug for CipherKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm { .. } => "Aes128Gcm(..)",
            Self::Aes256Gcm { .. } => "Aes256Gcm(..)",
            Self::ChaCha20Poly1305 { .. } => "ChaCha20Poly1305(..)",
        })
    }
}

impl Drop for CipherKeys {
    fn drop(&mut self) {
        // A plain write could be dropped as dead; `black_box` has the compiler believe in a reader.
        let key: &mut [u8] = match self {
            Self::Aes128Gcm { key, .. } => key,
            Self::Aes256Gcm { key, .. } | Self::ChaCha20Poly1305 { key, .. } => key,
        };
        key.fill(0);
        std::hint::black_box(key);
    }
}

impl CipherKeys {
    fn new(secrets: &ConnectionTrafficSecrets) -> Result<Self, SessionError> {
        fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SessionError> {
            bytes.try_into().map_err(|_| unknown_cipher())
        }
        Ok(match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => Self::Aes128Gcm {
                key: array(key.as_ref())?,
                iv: array(iv.as_ref())?,
            },
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => Self::Aes256Gcm {
                key: array(key.as_ref())?,
                iv: array(iv.as_ref())?,
            },
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Self::ChaCha20Poly1305 {
                key: array(key.as_ref())?,
                iv: array(iv.as_ref())?,
            },
            _ => return Err(unknown_cipher()),
        })
    }

    pub(crate) fn iv(&self) -> [u8; 12] {
        match self {
            Self::Aes128Gcm { iv, .. }
            | Self::Aes256Gcm { iv, .. }
            | Self::ChaCha20Poly1305 { iv, .. } => *iv,
        }
    }

    pub(crate) fn aead(&self) -> Result<LessSafeKey, SessionError> {
        let key = match self {
            Self::Aes128Gcm { key, .. } => UnboundKey::new(&AES_128_GCM, key),
            Self::Aes256Gcm { key, .. } => UnboundKey::new(&AES_256_GCM, key),
            Self::ChaCha20Poly1305 { key, .. } => UnboundKey::new(&CHACHA20_POLY1305, key),
        };
        key.map(LessSafeKey::new).map_err(|_| unknown_cipher())
    }

    /// What one such key may protect.
    pub(crate) fn budget(&self) -> BlockBudget {
        #[cfg(test)]
        if let Some(tiny) = crate::limits::tiny::get() {
            return tiny;
        }
        match self {
            Self::Aes128Gcm { .. } | Self::Aes256Gcm { .. } => BlockBudget::aes_gcm(),
            Self::ChaCha20Poly1305 { .. } => BlockBudget::unlimited(),
        }
    }
}

fn unknown_cipher() -> SessionError {
    SessionError::peer(
        "a cipher was agreed whose keys are unknown here",
        AlertDescription::InternalError,
    )
}

/// The keys of both directions and the numbers of their next records.
#[derive(Debug)]
pub struct KernelKeys {
    /// What we send with, and the number of the next record.
    pub transmit: (CipherKeys, u64),
    /// What we receive with, and the number of the next record.
    pub receive: (CipherKeys, u64),
}

impl KernelKeys {
    pub(crate) fn new(secrets: &ExtractedSecrets) -> Result<Self, SessionError> {
        Ok(Self {
            transmit: (CipherKeys::new(&secrets.tx.1)?, secrets.tx.0),
            receive: (CipherKeys::new(&secrets.rx.1)?, secrets.rx.0),
        })
    }
}

/// What remains of a handshake: the secrets that later keys come from, and the ticket store.
pub(crate) struct KeySchedule(Side);

enum Side {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl fmt::Debug for KeySchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySchedule(..)")
    }
}

impl KeySchedule {
    pub(crate) fn client(connection: KernelConnection<ClientConnectionData>) -> Self {
        Self(Side::Client(connection))
    }

    pub(crate) fn server(connection: KernelConnection<ServerConnectionData>) -> Self {
        Self(Side::Server(connection))
    }

    /// The next key to send with (RFC 8446 §7.2); its records are numbered from 0.
    pub(crate) fn next_transmit(&mut self) -> Result<CipherKeys, SessionError> {
        let secrets = match &mut self.0 {
            Side::Client(connection) => connection.update_tx_secret(),
            Side::Server(connection) => connection.update_tx_secret(),
        };
        CipherKeys::new(&secrets.map_err(SessionError::Handshake)?.1)
    }

    /// The next key to receive with.
    pub(crate) fn next_receive(&mut self) -> Result<CipherKeys, SessionError> {
        let secrets = match &mut self.0 {
            Side::Client(connection) => connection.update_rx_secret(),
            Side::Server(connection) => connection.update_rx_secret(),
        };
        CipherKeys::new(&secrets.map_err(SessionError::Handshake)?.1)
    }

    /// A NewSessionTicket's body: kept for the next connection to this server (RFC 8446 §4.6.1).
    pub(crate) fn on_ticket(&mut self, body: &[u8]) -> Result<(), SessionError> {
        match &mut self.0 {
            Side::Client(connection) => connection.handle_new_session_ticket(body).map_err(|_| {
                SessionError::peer("a damaged session ticket", AlertDescription::DecodeError)
            }),
            Side::Server(_) => Err(SessionError::peer(
                "a client sent a session ticket",
                AlertDescription::UnexpectedMessage,
            )),
        }
    }
}
