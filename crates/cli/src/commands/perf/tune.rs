//! Flags of both ends of a measurement.

use towline::config::{Cipher, CipherPreference, KeyExchange, KeyExchangePreference, Options};

/// What both ends may choose.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// Use only this cipher: aes128gcm, aes256gcm, chacha20
    #[arg(long, value_name = "NAME")]
    cipher: Option<Cipher>,
    /// Use only this key exchange: x25519mlkem768, x25519, p256
    #[arg(long, value_name = "NAME")]
    kx: Option<KeyExchange>,
    /// UDP payload bytes of full packets, instead of as many as the path is found to carry
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1200..=65507))]
    mtu: Option<u16>,
}

impl TuneArgs {
    /// Sets what was chosen.
    pub(crate) fn apply(&self, options: &mut Options) {
        if let Some(mtu) = self.mtu {
            options.transport = options.transport.clone().mtu(mtu);
        }
        if let Some(cipher) = self.cipher {
            options.ciphers = CipherPreference::only(cipher);
        }
        if let Some(kx) = self.kx {
            options.key_exchanges = KeyExchangePreference::only(kx);
        }
    }
}
