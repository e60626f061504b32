use std::time::Duration;

use rustls::pki_types::UnixTime;

use super::*;

fn dev(name: &str) -> Identity {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
    Identity::generate_dev(&[name], now).unwrap()
}

#[test]
fn pem_and_der_lead_back_to_the_same_identity() {
    let identity = dev("a.test");
    let chain = identity.certificate_pem().unwrap();
    let key = identity.private_key_pem();
    let from_pem = Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    assert_eq!(from_pem.certificate_chain(), identity.certificate_chain());
    assert_eq!(from_pem.key_pin(), identity.key_pin());
    let from_der = Identity::from_der(
        identity.certificate_chain().to_vec(),
        identity.private_key_der(),
    )
    .unwrap();
    assert_eq!(from_der.certificate_pin(), identity.certificate_pin());
}

#[test]
fn chain_and_key_may_share_one_file() {
    let identity = dev("a.test");
    let both = identity.private_key_pem() + &identity.certificate_pem().unwrap();
    assert!(Identity::from_pem(both.as_bytes(), both.as_bytes()).is_ok());
}

#[test]
fn a_raw_key_has_pins_but_no_certificate() {
    let identity = Identity::generate_raw_key().unwrap();
    assert_eq!(identity.kind(), IdentityKind::RawKey);
    assert_eq!(identity.spki().len(), 44);
    assert_eq!(identity.certificate_pin(), None);
    assert_eq!(identity.certificate_pem(), None);
    assert!(
        identity
            .public_key_pem()
            .starts_with("-----BEGIN PUBLIC KEY-----")
    );
    let again = Identity::raw_key_from_pem(identity.private_key_pem().as_bytes()).unwrap();
    assert_eq!(again.key_pin(), identity.key_pin());
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (one, other) = (dev("a.test"), dev("a.test"));
    let error = Identity::from_der(one.certificate_chain().to_vec(), other.private_key_der());
    assert_eq!(error.unwrap_err(), IdentityError::KeyMismatch);
}

#[test]
fn unusable_input_is_named() {
    let identity = dev("a.test");
    let chain = identity.certificate_pem().unwrap();
    let key = identity.private_key_pem();
    let error =
        |chain: &str, key: &str| Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap_err();
    assert_eq!(error("", &key), CertificatesError::Empty.into());
    assert_eq!(error(&chain, ""), IdentityError::NoPrivateKey);
    assert_eq!(error(&chain, &chain), IdentityError::NoPrivateKey);
    assert_eq!(
        error(&(chain.clone() + &text::pem("CERTIFICATE", b"no")), &key),
        CertificatesError::Unreadable { position: 2 }.into()
    );
    assert_eq!(
        error(&chain, &text::pem("PRIVATE KEY", b"no")),
        IdentityError::UnsupportedKey
    );
    assert!(matches!(
        error(&chain[..100], &key),
        IdentityError::Certificates(CertificatesError::Pem(_))
    ));
}

#[test]
fn debug_shows_the_pin_and_no_secret() {
    let identity = Identity::raw_key_from_seed(&[7; 32]).unwrap();
    let shown = format!("{identity:?}");
    assert!(shown.contains(&identity.key_pin().to_string()), "{shown}");
    assert!(
        !shown.contains("7, 7") && !shown.contains("0707"),
        "{shown}"
    );
}
