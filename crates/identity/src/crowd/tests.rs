use std::net::IpAddr;

use super::{Crowd, Goes, address_groups};

fn path(address: &str) -> [u128; 3] {
    address_groups(address.parse::<IpAddr>().unwrap())
}

#[test]
fn who_floods_displaces_himself_however_he_spreads() {
    // From one address, from one /24, from one /16, from one IPv6 /32.
    let floods: [fn(u32) -> String; 4] = [
        |_| "203.0.113.7".into(),
        |n| format!("203.0.113.{}", n % 256),
        |n| format!("203.0.{}.{}", n / 256 % 256, n % 256),
        |n| format!("2001:db8:{:x}:{:x}::1", n / 7, n),
    ];
    for flood in floods {
        let mut crowd = Crowd::new(Goes::Oldest);
        let honest = ["192.0.2.1", "192.0.2.2", "198.51.100.1", "2001:db9::1"];
        for (age, address) in honest.into_iter().enumerate() {
            crowd.insert(&path(address), age as u64, address.to_owned());
        }
        for n in 0..2000 {
            let address = flood(n);
            crowd.insert(&path(&address), 100 + u64::from(n), address);
            if crowd.len() > 50 {
                let gone = crowd.displace().unwrap();
                assert!(!honest.contains(&gone.as_str()), "{gone} went at {n}");
            }
        }
        assert_eq!(crowd.len(), 50);
        for (age, address) in honest.into_iter().enumerate() {
            let left = crowd.remove(&path(address), age as u64);
            assert_eq!(left.as_deref(), Some(address));
        }
    }
}

#[test]
fn of_equals_the_oldest_goes_or_the_newest() {
    for (goes, first, second) in [(Goes::Oldest, 0, 1), (Goes::Newest, 9, 8)] {
        let mut crowd = Crowd::new(goes);
        for n in 0..10_u64 {
            crowd.insert(&[u128::from(n * 7 % 10)], n, n);
        }
        assert_eq!(crowd.displace(), Some(first));
        assert_eq!(crowd.displace(), Some(second));
        // Within a group as well.
        let mut crowd = Crowd::new(goes);
        (0..10).for_each(|n| crowd.insert(&[5], n, n));
        assert_eq!(crowd.displace(), Some(first));
    }
}

#[test]
fn whoever_is_gone_is_counted_no_more() {
    let mut crowd = Crowd::new(Goes::Oldest);
    for n in 0..10 {
        crowd.insert(&[1, n], n as u64, n);
    }
    crowd.insert(&[2, 0], 10, 100);
    for n in 0..9 {
        assert_eq!(crowd.remove(&[1, n], n as u64), Some(n));
        assert_eq!(crowd.remove(&[1, n], n as u64), None, "twice");
    }
    crowd.insert(&[2, 0], 11, 101);
    assert_eq!(crowd.len(), 3);
    assert_eq!(crowd.displace(), Some(100));
    assert_eq!(crowd.displace(), Some(9));
    assert_eq!(crowd.displace(), Some(101));
    assert_eq!(crowd.displace(), None);
    assert!(crowd.is_empty());
}

#[test]
fn an_address_belongs_to_its_prefixes_and_loopback_is_one() {
    assert_eq!(path("10.1.2.3")[0], path("10.1.255.255")[0]);
    assert_ne!(path("10.1.2.3")[1], path("10.1.3.3")[1]);
    assert_ne!(path("10.1.2.3")[2], path("10.1.2.4")[2]);
    assert_eq!(path("10.1.2.3"), path("::ffff:10.1.2.3"));
    assert_eq!(path("2001:db8:1:2::3"), path("2001:db8:1:2:ffff::"));
    assert_ne!(path("2001:db8:1:2::3")[2], path("2001:db8:1:3::3")[2]);
    assert_eq!(path("2001:db8:1::")[0], path("2001:db8:2::")[0]);
    for other in ["127.9.8.7", "::1"] {
        assert_eq!(path("127.0.0.1"), path(other));
    }
}
