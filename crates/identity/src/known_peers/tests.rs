use std::time::Duration;

use rustls::pki_types::UnixTime;

use super::{Day, KnownPeers, KnownPeersError, Lookup, MAX_KNOWN_PEERS};
use crate::pin::KeyPin;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn key(byte: u8) -> KeyPin {
    KeyPin::from_bytes([byte; 32])
}

#[test]
fn a_new_peer_is_added_once_known_then_and_refused_with_another_key() {
    let mut list = KnownPeers::parse(b"").unwrap();
    assert_eq!(list.lookup("10.0.0.1:80", &key(1)), Lookup::New);
    list.add("10.0.0.1:80", key(1), at(1_795_305_600)).unwrap();
    let list = KnownPeers::parse(&list.emit()).unwrap();
    assert_eq!(list.lookup("10.0.0.1:80", &key(1)), Lookup::Known);
    assert_eq!(
        list.lookup("10.0.0.1:80", &key(2)),
        Lookup::Changed { expected: key(1) }
    );
    assert_eq!(list.lookup("10.0.0.1:81", &key(1)), Lookup::New);
    assert_eq!(
        list.iter().next().unwrap().first_seen.to_string(),
        "2026-11-22"
    );
}

#[test]
fn an_address_may_be_written_in_any_way() {
    let text = format!(
        "[2001:DB8:0::1]:80 {0} 2026-01-02\nFE80::1 {0} 2026-01-02\n",
        key(1)
    );
    let list = KnownPeers::parse(text.as_bytes()).unwrap();
    for name in ["[2001:db8::1]:80", "fe80::1"] {
        assert_eq!(list.lookup(name, &key(1)), Lookup::Known);
    }
    let twice = format!("::1 {0} 2026-01-02\n0::1 {0} 2026-01-02\n", key(1));
    let error = KnownPeers::parse(twice.as_bytes()).unwrap_err();
    assert!(matches!(error, KnownPeersError::Twice { .. }), "{error}");
}

#[test]
fn comments_and_empty_lines_survive_an_addition() {
    let text = format!("# mine\n\n10.0.0.1:80 {} 2026-01-02\n# end\n", key(1));
    let mut list = KnownPeers::parse(text.as_bytes()).unwrap();
    list.add("b", key(2), at(0)).unwrap();
    let expected = format!("{text}b {} 1970-01-01\n", key(2));
    assert_eq!(String::from_utf8(list.emit()).unwrap(), expected);
}

#[test]
fn a_wrong_line_is_named_with_its_number() {
    let good = format!("a {} 2026-01-02\n", key(1));
    for (text, words) in [
        (format!("{good}b {}\n", key(1)), "line 2 must read"),
        (format!("{good}b {} 2026-01-02 x\n", key(1)), "line 2 must"),
        (format!("{good}b sha256/12 2026-01-02\n"), "line 2: after"),
        (format!("b {} 2026-13-02", key(1)), "line 1: `2026-13-02`"),
        (format!("b {} 2026-1-02", key(1)), "line 1: `2026-1-02`"),
        (format!("b {} +026-01-02", key(1)), "line 1: `+026-01-02`"),
        (format!("{good}\n{good}"), "line 3: `a` is in line 1"),
    ] {
        let error = KnownPeers::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = KnownPeers::parse(b"# x\n\xff").unwrap_err();
    assert_eq!(error, KnownPeersError::NotText { line: 2 });
}

#[test]
fn a_name_that_would_change_the_list_is_refused() {
    let mut list = KnownPeers::default();
    for name in ["", "a b", "a\nb", "#a", "\u{7}", &"x".repeat(261)] {
        let error = list.add(name, key(1), at(0)).unwrap_err();
        assert!(matches!(error, KnownPeersError::BadName(_)), "{error}");
    }
    list.add("a", key(1), at(0)).unwrap();
    assert!(list.add("a", key(2), at(0)).is_err(), "never overwritten");
}

#[test]
fn a_full_list_takes_no_more_peers() {
    let mut text = Vec::new();
    for number in 0..MAX_KNOWN_PEERS {
        text.extend_from_slice(format!("p{number} {} 2026-01-02\n", key(1)).as_bytes());
    }
    let mut list = KnownPeers::parse(&text).unwrap();
    assert_eq!(list.add("more", key(1), at(0)), Err(KnownPeersError::Full));
    text.extend_from_slice(format!("more {} 2026-01-02\n", key(1)).as_bytes());
    assert_eq!(KnownPeers::parse(&text), Err(KnownPeersError::Full));
}

#[test]
fn days_of_the_calendar() {
    for (seconds, day) in [
        (0, "1970-01-01"),
        (951_782_399, "2000-02-28"),
        (951_782_400, "2000-02-29"),
        (1_709_251_199, "2024-02-29"),
        (1_709_251_200, "2024-03-01"),
        (4_107_542_400, "2100-03-01"),
        (253_402_300_799, "9999-12-31"),
        (u64::MAX, "9999-12-31"),
    ] {
        assert_eq!(Day::of(at(seconds)).to_string(), day);
        assert_eq!(Day::parse(day), Some(Day::of(at(seconds))));
    }
}
