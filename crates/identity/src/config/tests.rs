use rustls::pki_types::UnixTime;

use super::*;
use crate::pin::Pin;
use crate::provider;

#[derive(Debug)]
struct Midnight;

impl TimeProvider for Midnight {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            1_767_225_600,
        )))
    }
}

fn settings() -> TlsSettings {
    let provider = provider::provider(&Default::default(), &Default::default());
    TlsSettings::new(Arc::new(provider), Arc::new(Midnight))
}

fn x509() -> Identity {
    Identity::generate_dev(&["a.test"], Midnight.current_time().unwrap()).unwrap()
}

fn raw() -> Identity {
    Identity::generate_raw_key().unwrap()
}

#[test]
fn raw_keys_and_certificates_do_not_mix() {
    let raw_rule = Trust::RawKeys(vec![raw().key_pin()]);
    let error = client_config(&raw_rule, Some(&x509()), &settings()).unwrap_err();
    assert_eq!(error, ConfigError::MixedKinds);
    let error = server_config(&x509(), &ClientAuth::AnyRawKey, &settings()).unwrap_err();
    assert_eq!(error, ConfigError::MixedKinds);
    let pins = ClientAuth::Pinned(vec![Pin::Key(x509().key_pin())]);
    let error = server_config(&raw(), &pins, &settings()).unwrap_err();
    assert_eq!(error, ConfigError::MixedKinds);
}

#[test]
fn rules_that_could_let_nobody_in_are_refused() {
    let refused = |trust| client_config(&trust, None, &settings()).unwrap_err();
    assert_eq!(refused(Trust::Roots(vec![])), ConfigError::NoRoots);
    assert_eq!(refused(Trust::Pinned(vec![])), ConfigError::NoPins);
    assert_eq!(refused(Trust::RawKeys(vec![])), ConfigError::NoPins);
    let junk = CertificateDer::from(vec![0x30, 0]);
    assert_eq!(
        refused(Trust::SystemRoots(vec![junk.clone()])),
        ConfigError::NoRoots
    );
    let good = x509().certificate_chain()[0].clone();
    assert_eq!(
        refused(Trust::Roots(vec![good.clone(), junk.clone()])),
        ConfigError::BadRoot { position: 2 }
    );
    assert!(client_config(&Trust::SystemRoots(vec![junk, good]), None, &settings()).is_ok());
    let refused = |auth| server_config(&raw(), &auth, &settings()).unwrap_err();
    assert_eq!(refused(ClientAuth::RawKeys(vec![])), ConfigError::NoPins);
}

#[test]
fn impossible_settings_are_refused() {
    let anyone = Trust::InsecureAcceptAnyRawKey;
    let mut wrong = settings();
    wrong.alpn = vec![b"h3".to_vec(), Vec::new()];
    assert_eq!(
        client_config(&anyone, None, &wrong).unwrap_err(),
        ConfigError::BadAlpn { position: 2 }
    );
    let mut wrong = settings();
    wrong.early_data = true;
    wrong.resumption = Resumption::Disabled;
    assert_eq!(
        server_config(&raw(), &ClientAuth::None, &wrong).unwrap_err(),
        ConfigError::EarlyDataWithoutResumption
    );
}

#[test]
fn early_data_has_one_of_the_two_sizes_of_quic() {
    let mut early = settings();
    early.early_data = true;
    for (settings, size) in [(settings(), 0), (early, u32::MAX)] {
        let config = server_config(&raw(), &ClientAuth::None, &settings).unwrap();
        assert_eq!(config.max_early_data_size, size);
    }
}
