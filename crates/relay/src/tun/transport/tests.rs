use super::*;

fn v4(protocol: u8, segment: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; V4_HEADER];
    packet[0] = 0x45;
    let len = u16::try_from(V4_HEADER + segment.len()).unwrap();
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&[10, 77, 1, 2]);
    packet[16..20].copy_from_slice(&[10, 77, 2, 2]);
    packet.extend_from_slice(segment);
    packet
}

fn v6(protocol: u8, segment: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; V6_HEADER];
    packet[0] = 0x60;
    let len = u16::try_from(segment.len()).unwrap();
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet[6] = protocol;
    packet[8] = 0xfd;
    packet[24] = 0xfd;
    packet[39] = 2;
    packet.extend_from_slice(segment);
    packet
}

/// Ports 1000 to 4433, and an odd number of bytes.
fn segment(protocol: u8) -> Vec<u8> {
    let mut segment = vec![0; if protocol == UDP { 8 } else { 20 }];
    segment[..2].copy_from_slice(&1000_u16.to_be_bytes());
    segment[2..4].copy_from_slice(&4433_u16.to_be_bytes());
    if protocol == UDP {
        segment[5] = 15;
    }
    segment.extend_from_slice(b"payload");
    segment
}

/// As a receiver computes it: all ones where the checksum is right.
fn check(packet: &[u8]) -> u16 {
    let is_v4 = packet[0] >> 4 == 4;
    let (at, protocol) = match is_v4 {
        true => (V4_HEADER, packet[9]),
        false => (V6_HEADER, packet[6]),
    };
    if is_v4 {
        assert_eq!(folded(sum(&packet[..V4_HEADER])), 0xffff, "the IPv4 header");
    }
    let addresses = if is_v4 {
        &packet[12..20]
    } else {
        &packet[8..40]
    };
    let segment = &packet[at..];
    folded(sum(addresses) + segment.len() as u32 + u32::from(protocol) + sum(segment))
}

fn all() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for protocol in [UDP, TCP] {
        all.push(v4(protocol, &segment(protocol)));
        all.push(v6(protocol, &segment(protocol)));
    }
    all
}

#[test]
fn mended_packets_pass_the_receivers_check() {
    for mut packet in all() {
        mend(&mut packet);
        assert_eq!(check(&packet), 0xffff);
        let last = packet.len() - 1;
        packet[last] ^= 4;
        assert_ne!(check(&packet), 0xffff);
        mend(&mut packet);
        assert_eq!(check(&packet), 0xffff);
    }
}

#[test]
fn rewritten_ends_keep_checksums_right_and_wrong_ones_wrong() {
    for mut packet in all() {
        mend(&mut packet);
        let transport = Transport::of(&packet).unwrap();
        let is_v4 = packet[0] >> 4 == 4;
        for number in 0..2000_u16 {
            let ip: IpAddr = match is_v4 {
                true => [10, 77, (number >> 8) as u8, number as u8].into(),
                false => [0xfd77, 1, 0, number, 0, 0, 0, 2].into(),
            };
            let new = SocketAddr::new(ip, number.wrapping_mul(40_503));
            for end in [End::Source, End::Destination] {
                transport.set_end(&mut packet, end, new);
                assert_eq!(transport.end(&packet, end), Some(new));
                assert_eq!(check(&packet), 0xffff, "{packet:x?}");
            }
        }
        let last = packet.len() - 1;
        packet[last] ^= 4;
        let new = transport.end(&packet, End::Destination).unwrap();
        transport.set_end(&mut packet, End::Source, new);
        assert_ne!(check(&packet), 0xffff);
    }
}

#[test]
fn a_datagram_without_a_checksum_stays_without() {
    let mut packet = v4(UDP, &segment(UDP));
    let transport = Transport::of(&packet).unwrap();
    let new = "10.77.1.100:7".parse().unwrap();
    transport.set_end(&mut packet, End::Source, new);
    assert_eq!(packet[V4_HEADER + 6..V4_HEADER + 8], [0, 0]);
}

#[test]
fn what_has_no_ports_is_left_alone() {
    let mut fragment = v4(UDP, &segment(UDP));
    fragment[7] = 1;
    let short = v4(TCP, &[0; 19]);
    let ping = v4(ICMP_V4, &[8; 16]);
    let mut long_header = v4(UDP, &segment(UDP));
    long_header[0] = 0x4f;
    for packet in [&fragment[..], &short, &ping, &long_header, &[], &[0x65; 39]] {
        assert_eq!(Transport::of(packet), None, "{packet:x?}");
        mend(&mut packet.to_vec());
    }
}

#[test]
fn the_error_quotes_the_packet_and_says_the_mtu() {
    let packet = v4(UDP, &segment(UDP));
    let error = too_big(&packet, 1400).unwrap();
    assert_eq!(folded(sum(&error[..V4_HEADER])), 0xffff);
    assert_eq!(folded(sum(&error[V4_HEADER..])), 0xffff);
    assert_eq!(error[20..22], [3, 4]);
    assert_eq!(error[26..28], 1400_u16.to_be_bytes());
    assert_eq!(error[28..], packet);
    let header = packet::read(&error).unwrap();
    assert_eq!(header.destination, "10.77.1.2".parse::<IpAddr>().unwrap());

    let packet = v6(UDP, &segment(UDP));
    let error = too_big(&packet, 1400).unwrap();
    assert_eq!(check(&error), 0xffff);
    assert_eq!(error[40..42], [2, 0]);
    assert_eq!(error[46..48], 1400_u16.to_be_bytes());
    assert_eq!(error[48..], packet);
}

#[test]
fn errors_are_not_answered_with_errors_nor_what_may_be_fragmented() {
    let mut fragmentable = v4(UDP, &segment(UDP));
    fragmentable[6] = 0;
    let icmp = v4(ICMP_V4, &[3; 16]);
    let icmp_v6 = v6(ICMP_V6, &[2; 16]);
    for packet in [&fragmentable[..], &icmp, &icmp_v6, &[], &[0x45; 19]] {
        assert_eq!(too_big(packet, 1400), None, "{packet:x?}");
    }
}
