use super::*;

/// The sum over a header whose checksum is right is all ones (RFC 791 §3.1).
fn header_sum(header: &[u8]) -> u16 {
    let mut sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A UDP packet's IPv4 header with a right checksum.
fn v4(tos: u8, identification: u16) -> Vec<u8> {
    let mut packet = vec![
        0x45, tos, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 1, 2, 10, 77, 2, 2,
    ];
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    let checksum = !header_sum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend([0; 8]);
    packet
}

fn v6(traffic_class: u8) -> Vec<u8> {
    let mut packet = vec![0; V6_HEADER];
    let first = 6 << 28 | u32::from(traffic_class) << 20 | 0xa_bcde;
    packet[..4].copy_from_slice(&first.to_be_bytes());
    packet[8..24].copy_from_slice(&"fd77:1::2".parse::<Ipv6Addr>().unwrap().octets());
    packet[24..40].copy_from_slice(&"fd77:2::2".parse::<Ipv6Addr>().unwrap().octets());
    packet
}

#[test]
fn addresses_and_ecn_bits_are_read_from_both_versions() {
    for ecn in 0..4 {
        let header = read(&v4(0xb8 | ecn, 7)).unwrap();
        assert_eq!(header.source, "10.77.1.2".parse::<IpAddr>().unwrap());
        assert_eq!(header.destination, "10.77.2.2".parse::<IpAddr>().unwrap());
        assert_eq!(header.ecn, ecn);
        let header = read(&v6(0xb8 | ecn)).unwrap();
        assert_eq!(header.source, "fd77:1::2".parse::<IpAddr>().unwrap());
        assert_eq!(header.destination, "fd77:2::2".parse::<IpAddr>().unwrap());
        assert_eq!(header.ecn, ecn);
    }
}

#[test]
fn what_is_no_ip_packet_is_not_read() {
    for packet in [&[][..], &[0x45], &v4(0, 0)[..19], &v6(0)[..39], &[0x55; 60]] {
        assert_eq!(read(packet), None, "{packet:x?}");
        let mut same = packet.to_vec();
        set_ecn(&mut same, CE);
        assert_eq!(same, packet);
    }
}

#[test]
fn a_ce_mark_keeps_the_ipv4_checksum_right() {
    // All identifications, so that every carry of the ones' complement sum occurs.
    for identification in 0..=u16::MAX {
        for tos in [0, 1, 2, 3, 0xb9] {
            let mut packet = v4(tos, identification);
            set_ecn(&mut packet, CE);
            assert_eq!(packet[1], tos | CE);
            assert_eq!(header_sum(&packet[..V4_HEADER]), 0xffff, "{packet:x?}");
        }
    }
}

#[test]
fn a_ce_mark_does_not_repair_a_damaged_header() {
    let mut packet = v4(2, 1);
    packet[8] ^= 4;
    set_ecn(&mut packet, CE);
    assert_ne!(header_sum(&packet[..V4_HEADER]), 0xffff);
}

#[test]
fn ecn_bits_are_cleared_in_both_versions() {
    for ecn in 0..4 {
        let mut packet = v4(0xb8 | ecn, 7);
        set_ecn(&mut packet, 0);
        assert_eq!(packet, v4(0xb8, 7));
        let mut packet = v6(0xb8 | ecn);
        set_ecn(&mut packet, 1);
        assert_eq!(packet, v6(0xb9));
    }
}

#[test]
fn a_ce_mark_in_ipv6_changes_nothing_but_two_bits() {
    for (before, after) in [(0xb8, 0xbb), (0xba, 0xbb), (1, 3), (3, 3)] {
        let mut packet = v6(before);
        set_ecn(&mut packet, CE);
        assert_eq!(packet, v6(after));
    }
}

#[test]
fn what_kernels_say_on_their_own_link_stays_there() {
    let is_forwarded = |source: &str, destination: &str| {
        Header {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ecn: 0,
        }
        .is_forwarded()
    };
    assert!(is_forwarded("10.77.1.2", "10.77.2.2"));
    assert!(is_forwarded("fd77:1::2", "fd77:2::2"));
    assert!(!is_forwarded("fe80::1", "ff02::2"));
    assert!(!is_forwarded("fe80::1", "fd77:2::2"));
    assert!(!is_forwarded("::", "fd77:2::2"));
    assert!(!is_forwarded("10.77.1.2", "224.0.0.22"));
    assert!(!is_forwarded("10.77.1.2", "255.255.255.255"));
}
