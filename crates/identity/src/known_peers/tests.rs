use std::time::Duration;

use rustls::pki_types::UnixTime;

use super::{
    Day, KnownPeers, KnownPeersError, Lookup, MAX_KEYS_OF_A_PREFIX, MAX_KEYS_OF_AN_ADDRESS,
    MAX_KNOWN_PEERS,
};
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
    list.add_server("10.0.0.1:80", key(1), at(1_795_305_600))
        .unwrap();
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
    list.add_server("b", key(2), at(0)).unwrap();
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
        let error = list.add_server(name, key(1), at(0)).unwrap_err();
        assert!(matches!(error, KnownPeersError::BadName(_)), "{error}");
    }
    list.add_server("a", key(1), at(0)).unwrap();
    assert!(
        list.add_server("a", key(2), at(0)).is_err(),
        "never overwritten"
    );
}

#[test]
fn a_full_list_takes_no_more_peers() {
    let mut text = Vec::new();
    for number in 0..MAX_KNOWN_PEERS {
        text.extend_from_slice(format!("p{number} {} 2026-01-02\n", key(1)).as_bytes());
    }
    let mut list = KnownPeers::parse(&text).unwrap();
    assert_eq!(
        list.add_server("more", key(1), at(0)),
        Err(KnownPeersError::Full)
    );
    text.extend_from_slice(format!("more {} 2026-01-02\n", key(1)).as_bytes());
    assert_eq!(KnownPeers::parse(&text), Err(KnownPeersError::Full));
}

fn numbered_key(number: usize) -> KeyPin {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    KeyPin::from_bytes(bytes)
}

#[test]
fn a_second_user_or_host_at_one_address_is_known_beside_the_first() {
    let mut list = KnownPeers::default();
    for number in 0..MAX_KEYS_OF_AN_ADDRESS {
        let added = list.add_client("192.0.2.7", numbered_key(number), at(0));
        assert_eq!(added, Ok(None), "{number}");
    }
    let mut list = KnownPeers::parse(&list.emit()).unwrap();
    for number in 0..MAX_KEYS_OF_AN_ADDRESS {
        let found = list.lookup("192.0.2.7", &numbered_key(number));
        assert_eq!(found, Lookup::Known);
    }
    let error = list.add_client("192.0.2.7", key(9), at(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "16 keys of clients at 192.0.2.7 are in the list, and it takes no more from there; remove the \
         lines of those that are gone, or pin the clients' keys in a policy"
    );
    let again = list.add_client("192.0.2.7", numbered_key(3), at(0));
    assert!(matches!(
        again,
        Err(KnownPeersError::Twice { first: 4, .. })
    ));
    // A neighbour is not at that address.
    assert_eq!(list.add_client("192.0.2.8", key(9), at(0)), Ok(None));
    assert_eq!(list.add_client("fe80::1%2", key(9), at(0)), Ok(None));
}

#[test]
fn a_network_of_ipv6_has_room_for_more_hosts_than_one_address_for_keys() {
    let mut list = KnownPeers::default();
    let host = |number: usize| format!("2001:db8::{number:x}");
    for number in 0..MAX_KEYS_OF_A_PREFIX {
        let added = list.add_client(&host(number), numbered_key(number), at(0));
        assert_eq!(added, Ok(None), "{number}");
    }
    let error = list
        .add_client("2001:db8::ffff", key(9), at(0))
        .unwrap_err();
    assert!(error.to_string().contains("the prefix of"), "{error}");
    // The next network of the same site.
    assert_eq!(list.add_client("2001:db8:0:1::1", key(9), at(0)), Ok(None));
    // One host with many keys.
    let mut list = KnownPeers::default();
    for number in 0..MAX_KEYS_OF_AN_ADDRESS {
        let added = list.add_client(&host(1), numbered_key(number), at(0));
        assert_eq!(added, Ok(None), "{number}");
    }
    assert!(list.add_client(&host(1), key(9), at(0)).is_err());
    assert_eq!(list.add_client(&host(2), key(9), at(0)), Ok(None));
}

#[test]
fn clients_at_one_address_of_loopback_leave_room_at_the_others() {
    let mut list = KnownPeers::default();
    for number in 0..MAX_KEYS_OF_AN_ADDRESS {
        let added = list.add_client("127.0.0.9", numbered_key(number), at(0));
        assert_eq!(added, Ok(None), "{number}");
    }
    assert!(list.add_client("127.0.0.9", key(9), at(0)).is_err());
    assert_eq!(list.add_client("127.0.0.1", key(9), at(0)), Ok(None));
    assert_eq!(list.add_client("::1", key(9), at(0)), Ok(None));
    // All of them are everybody's, so together they are one prefix.
    for number in list.iter().count()..MAX_KEYS_OF_A_PREFIX {
        let name = format!("127.0.1.{}", number % 256);
        let added = list.add_client(&name, numbered_key(number), at(0));
        assert_eq!(added, Ok(None), "{number}");
    }
    assert!(list.add_client("127.0.0.2", key(9), at(0)).is_err());
}

#[test]
fn a_server_may_have_a_second_key_that_somebody_wrote_down() {
    let text = format!("a:1 {} 2026-01-02\na:1 {} 2026-01-02\n", key(1), key(2));
    let list = KnownPeers::parse(text.as_bytes()).unwrap();
    for known in [key(1), key(2)] {
        assert_eq!(list.lookup("a:1", &known), Lookup::Known);
    }
    let changed = Lookup::Changed { expected: key(1) };
    assert_eq!(list.lookup("a:1", &key(3)), changed);
}

#[test]
fn a_prefix_has_its_share_of_the_list() {
    let mut list = KnownPeers::default();
    for number in 0..MAX_KEYS_OF_A_PREFIX {
        let name = format!("203.0.113.{}", number % 256);
        let added = list.add_client(&name, numbered_key(number), at(0));
        assert_eq!(added, Ok(None), "{number}");
    }
    let error = list.add_client("203.0.113.1", key(9), at(0)).unwrap_err();
    assert!(
        matches!(
            error,
            KnownPeersError::Crowded {
                most: MAX_KEYS_OF_A_PREFIX,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(list.add_client("203.0.114.1", key(9), at(0)), Ok(None));
}

#[test]
fn a_flood_of_new_peers_makes_room_for_others_and_for_what_was_there_before() {
    let mut list = KnownPeers::default();
    let good = ["192.0.2.1", "198.51.100.7", "2001:db9::1"];
    for name in good {
        list.add_client(name, key(1), at(0)).unwrap();
    }
    list.add_client("db.example", key(1), at(0)).unwrap();
    // A /32 of IPv6, and more of it than the list has lines.
    for number in 0..12_000 {
        let name = format!("2001:db8:{:x}::{number:x}", number / 8);
        let displaced = list.add_client(&name, key(2), at(0));
        let displaced = displaced.unwrap_or_default();
        assert!(displaced.is_none_or(|peer| peer.key == key(2)), "{number}");
    }
    assert_eq!(list.iter().count(), MAX_KNOWN_PEERS);
    let displaced = list
        .add_client("192.0.2.2", key(1), at(0))
        .unwrap()
        .unwrap();
    assert_eq!(displaced.key, key(2));
    let displaced = list.add_server("192.0.2.3:80", key(1), at(0)).unwrap();
    assert_eq!(displaced.unwrap().key, key(2));
    assert_eq!(list.iter().count(), MAX_KNOWN_PEERS);
    let list = KnownPeers::parse(&list.emit()).unwrap();
    for name in good
        .into_iter()
        .chain(["192.0.2.2", "192.0.2.3:80", "db.example"])
    {
        assert_eq!(list.lookup(name, &key(1)), Lookup::Known, "{name}");
    }
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
