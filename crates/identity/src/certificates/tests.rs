use std::time::Duration;

use super::*;

/// 2026-01-01 00:00:00 UTC.
const START: u64 = 1_767_225_600;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// Valid for `days` from `from`.
fn identity(names: &[&str], from: u64, days: u64) -> Identity {
    let now = at(from + crate::BACKDATED_BY.as_secs());
    Identity::generate_ed25519(names, now, Duration::from_secs(days * DAY - 1)).unwrap()
}

fn shown(certificates: &Certificates, name: &str, now: u64) -> Option<crate::KeyPin> {
    let name = (!name.is_empty()).then_some(name);
    let identity = certificates.identity_for(name, at(now))?;
    Some(identity.key_pin())
}

#[test]
fn the_name_a_client_asks_for_picks_the_certificate() {
    let shop = identity(&["shop.test", "www.shop.test"], START, 14);
    let any = identity(&["*.boats.test"], START, 14);
    let one = identity(&["seven.boats.test", "192.0.2.1"], START, 14);
    let list = CertificateList::new([shop.clone(), any.clone(), one.clone()])
        .default_identities([shop.clone()]);
    let certificates = Certificates::new(list).unwrap();
    for (name, expected) in [
        ("shop.test", &shop),
        ("WWW.Shop.Test", &shop),
        ("six.boats.test", &any),
        ("six.boats.test.", &any),
        // The exact name comes first.
        ("seven.boats.test", &one),
        // A wildcard is one label (RFC 6125 §6.4.3), and not none.
        ("a.six.boats.test", &shop),
        ("boats.test", &shop),
        ("", &shop),
    ] {
        assert_eq!(
            shown(&certificates, name, START + DAY),
            Some(expected.key_pin()),
            "{name}"
        );
    }
}

#[test]
fn the_newest_valid_certificate_is_shown_and_takes_over_by_itself() {
    let first = identity(&["a.test"], START, 14);
    let second = identity(&["a.test"], START + 7 * DAY, 14);
    // Given in any order.
    for list in [[&first, &second], [&second, &first]] {
        let list = CertificateList::new(list.map(Identity::clone));
        let certificates = Certificates::new(list).unwrap();
        for (day, expected) in [
            (0, &first),
            (6, &first),
            (7, &second),
            (13, &second),
            (20, &second),
            // None is valid: the one that ended last, or ends last.
            (40, &second),
        ] {
            for name in ["a.test", ""] {
                let shown = shown(&certificates, name, START + day * DAY);
                assert_eq!(shown, Some(expected.key_pin()), "day {day}");
            }
        }
        let before = shown(&certificates, "a.test", START - DAY);
        assert_eq!(before, Some(second.key_pin()));
    }
}

#[test]
fn a_wildcard_that_is_valid_comes_before_an_exact_name_that_is_not() {
    let any = identity(&["*.boats.test"], START, 14);
    let one = identity(&["seven.boats.test"], START, 7);
    let other = identity(&["shop.test"], START, 100);
    let list = CertificateList::new([any.clone(), one.clone(), other]);
    let certificates = Certificates::new(list).unwrap();
    for (day, expected) in [(6, &one), (8, &any), (20, &any)] {
        let shown = shown(&certificates, "seven.boats.test", START + day * DAY);
        assert_eq!(shown, Some(expected.key_pin()), "day {day}");
    }
}

#[test]
fn a_new_list_replaces_the_whole_old_one() {
    let (old, new) = (
        identity(&["a.test"], START, 14),
        identity(&["b.test"], START, 14),
    );
    let certificates = Certificates::new(old.clone()).unwrap();
    let clone = certificates.clone();
    let strict = CertificateList::new([new.clone()]).default_identities([]);
    clone.set(strict).unwrap();
    assert_eq!(shown(&certificates, "b.test", START), Some(new.key_pin()));
    assert_eq!(shown(&certificates, "a.test", START), None);
    assert_eq!(shown(&certificates, "", START), None);
}

#[test]
fn a_list_that_could_serve_nobody_is_refused_and_the_old_one_stays() {
    let old = identity(&["a.test"], START, 14);
    let certificates = Certificates::new(old.clone()).unwrap();
    let nameless = identity(&["192.0.2.1"], START, 14);
    let raw = Identity::generate_raw_key().unwrap();
    let both = [old.clone(), nameless.clone()];
    for (list, error) in [
        (CertificateList::default(), ConfigError::NoCertificates),
        (CertificateList::new([raw]), ConfigError::MixedKinds),
        (
            CertificateList::new(both).default_identities([old.clone()]),
            ConfigError::CertificateWithoutName { position: 2 },
        ),
    ] {
        assert_eq!(certificates.set(list), Err(error));
        assert_eq!(shown(&certificates, "a.test", START), Some(old.key_pin()));
    }
    // For clients that connect to the address it is as good as any.
    certificates.set(nameless.clone()).unwrap();
    assert_eq!(
        shown(&certificates, "a.test", START),
        Some(nameless.key_pin())
    );
}
