use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

use super::*;

fn certificate(change: impl FnOnce(&mut CertificateParams)) -> (Vec<u8>, KeyPair) {
    let pair = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    change(&mut params);
    (params.self_signed(&pair).unwrap().der().to_vec(), pair)
}

#[test]
fn key_subject_and_dates_are_found() {
    let (der, pair) = certificate(|params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "NZ");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Boats\u{7} Ltd");
        params.distinguished_name.push(DnType::CommonName, "bøat");
        params.not_before = date_time_ymd(2024, 2, 29);
        params.not_after = date_time_ymd(2050, 3, 1);
    });
    let parsed = parse(&der).unwrap();
    let key = spki(&CertificateDer::from(der.clone())).unwrap();
    assert_eq!(key, rcgen::PublicKeyData::subject_public_key_info(&pair));
    assert_eq!(
        subject_text(parsed.subject),
        "C=NZ, O=Boats\u{fffd} Ltd, CN=bøat"
    );
    assert_eq!(parsed.not_before.as_secs(), 1_709_164_800);
    assert_eq!(parsed.not_after.as_secs(), 2_529_705_600);
    assert!(is_spki(&key));
    assert!(!is_spki(&der));
    assert!(parse(&key).is_none());
}

#[test]
fn a_long_subject_is_cut() {
    let (der, _) = certificate(|params| {
        params
            .distinguished_name
            .push(DnType::CommonName, "ø".repeat(400));
    });
    let text = subject_text(parse(&der).unwrap().subject);
    assert_eq!(text.chars().count(), SUBJECT_MAX + 1);
}

#[test]
fn days_are_counted_over_leap_years() {
    assert_eq!(days_since_1970(1970, 1, 1), 0);
    assert_eq!(days_since_1970(1969, 12, 31), -1);
    assert_eq!(days_since_1970(2000, 3, 1), 11_017);
    assert_eq!(
        days_since_1970(2100, 3, 1) - days_since_1970(2100, 2, 28),
        1
    );
}

#[test]
fn every_truncation_and_every_changed_byte_is_survived() {
    let (der, _) = certificate(|_| {});
    for end in 0..der.len() {
        assert!(parse(&der[..end]).is_none());
        assert!(!is_spki(&der[..end]));
    }
    for at in 0..der.len() {
        for value in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
            let mut changed = der.clone();
            changed[at] = value;
            if let Some(parsed) = parse(&changed) {
                let _text = subject_text(parsed.subject);
            }
        }
    }
}

#[test]
fn dns_names_are_found_and_addresses_are_none() {
    let names = ["a.test", "192.0.2.1", "*.b.test"].map(str::to_owned);
    let (der, _) = certificate(|params| {
        params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    });
    assert_eq!(dns_names(&der), ["a.test", "*.b.test"]);
    let (der, _) = certificate(|params| params.subject_alt_names.clear());
    assert_eq!(dns_names(&der), [""; 0]);
    // Cut anywhere, it is no certificate.
    assert!((0..der.len()).all(|end| dns_names(&der[..end]).is_empty()));
}
