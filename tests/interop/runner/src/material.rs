//! What the cases work on: a P-256 certificate chain for `localhost` and files
//! of pseudo-random bytes, the same in every invocation. Made once in `main`.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::Error;

/// A file the servers offer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Name under the root.
    pub(crate) name: &'static str,
    /// Length in bytes.
    pub(crate) length: usize,
}

/// No byte at all: the answer is a lone FIN.
pub(crate) const EMPTY: Sample = Sample {
    name: "empty",
    length: 0,
};
/// Fits one packet.
pub(crate) const SMALL: Sample = Sample {
    name: "1k",
    length: 1024,
};
/// Fits one initial congestion window.
pub(crate) const MEDIUM: Sample = Sample {
    name: "10k",
    length: 10 * 1024,
};
/// Some thousand packets.
pub(crate) const LARGE: Sample = Sample {
    name: "2m",
    length: 2 << 20,
};
/// Enough for a key update well inside the transfer.
pub(crate) const LARGER: Sample = Sample {
    name: "3m",
    length: 3 << 20,
};
/// The 10 MB transfer.
pub(crate) const HUGE: Sample = Sample {
    name: "10m",
    length: 10_000_000,
};

/// Paths of everything generated.
#[derive(Debug)]
pub(crate) struct Material {
    /// The CA's certificate, what clients trust.
    pub(crate) ca: PathBuf,
    /// The server's chain.
    pub(crate) cert: PathBuf,
    /// The server's key.
    pub(crate) key: PathBuf,
    /// The folder servers serve.
    pub(crate) root: PathBuf,
}

impl Material {
    /// Writes everything into `folder`, over what an earlier run left there.
    pub(crate) fn generate(folder: &Path) -> Result<Material, Error> {
        let material = Material {
            ca: folder.join("ca.pem"),
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            root: folder.join("root"),
        };
        fs::create_dir_all(&material.root)?;
        material.write_certificates()?;
        for (seed, sample) in [EMPTY, SMALL, MEDIUM, LARGE, LARGER, HUGE]
            .iter()
            .enumerate()
        {
            let data = noise(seed as u64 + 1, sample.length);
            fs::write(material.root.join(sample.name), data)?;
        }
        Ok(material)
    }

    fn write_certificates(&self) -> Result<(), Error> {
        let mut ca = CertificateParams::default();
        ca.distinguished_name
            .push(DnType::CommonName, "Towline interop CA");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_key = KeyPair::generate()?;
        fs::write(&self.ca, ca.self_signed(&ca_key)?.pem())?;

        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut leaf = CertificateParams::new(names)?;
        leaf.distinguished_name
            .push(DnType::CommonName, "localhost");
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &Issuer::new(ca, ca_key))?;
        fs::write(&self.cert, certificate.pem())?;
        fs::write(&self.key, key.serialize_pem())?;
        Ok(())
    }
}

/// `length` bytes of xorshift64* noise: incompressible and without repeats, so
/// that a misplaced block never compares equal.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut data = Vec::with_capacity(length + 8);
    while data.len() < length {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        data.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    data.truncate(length);
    data
}
