//! Who the peer is, and who we are.
//!
//! Owns identities (an X.509 chain or a raw public key, with the private key), pins, lists of
//! known peers, the rules by which a peer is believed, and the rustls configurations made of them:
//! TLS 1.3 only, aws-lc only. `quic`, `stcp` and `towline` call it; the command line uses its names
//! for ciphers and groups.
//!
//! It takes and returns bytes: files are `towline`'s. It reads no clock: dates come in as
//! [`UnixTime`], and rustls gets the `TimeProvider` it is given. Keys are drawn from aws-lc's
//! generator unless the caller brings a seed. A listener has one kind, raw keys or X.509.
#![forbid(unsafe_code)]

mod anonymous;
mod browsers;
mod certificates;
mod config;
mod crowd;
mod error;
mod generate;
mod identity;
mod known_peers;
mod peer;
mod pin;
mod provider;
mod renewal;
mod rotation;
mod text;
mod trust;
mod verify;
mod x509;

pub use browsers::HashObstacle;
pub use certificates::{CertificateList, Certificates, is_without_certificate};
pub use config::{
    Resumption, TlsSettings, certificates_server_config, client_config, renewing_server_config,
    server_config,
};
pub use crowd::{ADDRESS_LEVELS, Crowd, Goes, address_groups};
pub use error::{
    CertificatesError, ConfigError, Expected, GenerateError, IdentityError, PeerRejected,
    PreferenceError,
};
pub use generate::{BACKDATED_BY, DEV_LIFETIME};
pub use identity::{Identity, IdentityKind, certificates_from_pem};
pub use known_peers::{
    Day, KnownPeer, KnownPeers, KnownPeersError, Lookup, MAX_KEYS_OF_A_PREFIX,
    MAX_KEYS_OF_AN_ADDRESS, MAX_KNOWN_PEERS,
};
pub use peer::PeerIdentity;
pub use pin::{CertificatePin, KeyPin, Pin, PinError};
pub use provider::{
    Cipher, CipherPreference, KeyExchange, KeyExchangePreference, cpu_has_aes, initial_suite,
    provider,
};
pub use renewal::{RENEW_BEFORE, Renewal};
pub use rotation::{ROTATE_EVERY, Rotation, SWAP_BEFORE_END};
pub use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
pub use trust::{ClientAuth, KeyList, Trust};
pub use x509::validity;
