//! Key exchange groups whose private keys come from the seed.
//!
//! X25519 is the real one with a drawn private key. ML-KEM cannot be seeded in aws-lc-rs, so
//! [`HYBRID`] carries the name X25519MLKEM768 and its share sizes (and so the real flight sizes),
//! but filler bytes where the ML-KEM parts would be. It talks only to itself.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519 as X25519_ALGORITHM, agree};
use aws_lc_rs::digest;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

use crate::random;

/// Length of an X25519 share (RFC 7748 §5).
const X25519_LEN: usize = 32;
/// Length of an ML-KEM-768 encapsulation key (FIPS 203 table 3), the client's part.
const ENCAPSULATION_KEY_LEN: usize = 1184;
/// Length of an ML-KEM-768 ciphertext (FIPS 203 table 3), the server's part.
const CIPHERTEXT_LEN: usize = 1088;

/// X25519 with seeded private keys.
pub(crate) static X25519: &dyn SupportedKxGroup = &SeededX25519;
/// The stand-in for X25519MLKEM768.
pub(crate) static HYBRID: &dyn SupportedKxGroup = &StandInHybrid;

const BAD_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

#[derive(Debug)]
struct SeededX25519;

impl SupportedKxGroup for SeededX25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(ActiveX25519::draw()?))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct ActiveX25519 {
    private: PrivateKey,
    share: [u8; X25519_LEN],
}

impl ActiveX25519 {
    fn draw() -> Result<ActiveX25519, Error> {
        let mut scalar = [0; X25519_LEN];
        random::fill(&mut scalar)?;
        let private = PrivateKey::from_private_key(&X25519_ALGORITHM, &scalar)
            .map_err(|_| Error::General("X25519 refused a 32-byte scalar".into()))?;
        let public = private
            .compute_public_key()
            .map_err(|_| Error::General("X25519 gave no public key".into()))?;
        let mut share = [0; X25519_LEN];
        share.copy_from_slice(public.as_ref());
        Ok(ActiveX25519 { private, share })
    }

    fn agree(&self, peer: &[u8]) -> Result<SharedSecret, Error> {
        agree(
            &self.private,
            UnparsedPublicKey::new(&X25519_ALGORITHM, peer),
            BAD_SHARE,
            |secret| Ok(SharedSecret::from(secret)),
        )
    }
}

impl ActiveKeyExchange for ActiveX25519 {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        self.agree(peer)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[derive(Debug)]
struct StandInHybrid;

impl SupportedKxGroup for StandInHybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let classical = ActiveX25519::draw()?;
        let share = share_with_filler(ENCAPSULATION_KEY_LEN, &classical)?;
        Ok(Box::new(ActiveHybrid { classical, share }))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (client_filler, client_point) = split(client_share, ENCAPSULATION_KEY_LEN)?;
        let classical = ActiveX25519::draw()?;
        let share = share_with_filler(CIPHERTEXT_LEN, &classical)?;
        let secret = combine(
            client_filler,
            &share[..CIPHERTEXT_LEN],
            &classical.agree(client_point)?,
        );
        Ok(CompletedKeyExchange {
            group: NamedGroup::X25519MLKEM768,
            pub_key: share,
            secret,
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

struct ActiveHybrid {
    classical: ActiveX25519,
    share: Vec<u8>,
}

impl ActiveKeyExchange for ActiveHybrid {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        let (server_filler, server_point) = split(server_share, CIPHERTEXT_LEN)?;
        Ok(combine(
            &self.share[..ENCAPSULATION_KEY_LEN],
            server_filler,
            &self.classical.agree(server_point)?,
        ))
    }

    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((NamedGroup::X25519, &self.classical.share))
    }

    fn complete_hybrid_component(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        self.classical.agree(peer)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

/// Filler first, then the X25519 point, in the order of the real group.
fn share_with_filler(filler_len: usize, classical: &ActiveX25519) -> Result<Vec<u8>, Error> {
    let mut share = vec![0; filler_len];
    random::fill(&mut share)?;
    share.extend_from_slice(&classical.share);
    Ok(share)
}

fn split(share: &[u8], filler_len: usize) -> Result<(&[u8], &[u8]), Error> {
    if share.len() != filler_len + X25519_LEN {
        return Err(BAD_SHARE);
    }
    Ok(share.split_at(filler_len))
}

/// Both fillers enter the secret, so that a share changed on the way breaks the handshake.
fn combine(client_filler: &[u8], server_filler: &[u8], point: &SharedSecret) -> SharedSecret {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(client_filler);
    hash.update(server_filler);
    let mut secret = hash.finish().as_ref().to_vec();
    secret.extend_from_slice(point.secret_bytes());
    SharedSecret::from(secret)
}
