use super::*;

/// A version 1 long header with connection IDs of 3 and 1 bytes.
fn long_header(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut datagram = vec![first, 0, 0, 0, 1, 3, 7, 7, 7, 1, 9];
    datagram.extend_from_slice(rest);
    datagram
}

#[test]
fn a_retry_is_told_from_other_packets() {
    assert_eq!(long_type(&long_header(0xf0, b"token")), Some(3));
    assert_eq!(long_type(&long_header(0xc3, &[0])), Some(0));
    let short = [0x40, 0, 0, 0, 1];
    assert_eq!(long_type(&short), None);
    let version_negotiation = [0xf0, 0, 0, 0, 0];
    assert_eq!(long_type(&version_negotiation), None);
    assert_eq!(long_type(&[]), None);
}

#[test]
fn an_initials_token_length_is_read_in_every_varint_size() {
    let length = |rest: &[u8]| initial_token_length(&long_header(0xc0, rest));
    assert_eq!(length(&[0]), Some(0));
    assert_eq!(length(&[63]), Some(63));
    assert_eq!(length(&[0x40, 100]), Some(100));
    assert_eq!(length(&[0x80, 0, 1, 0]), Some(256));
    assert_eq!(length(&[0xc0, 0, 0, 0, 0, 0, 0, 5]), Some(5));
    assert_eq!(length(&[0x40]), None);
    assert_eq!(initial_token_length(&long_header(0xe0, &[63])), None);
}

#[test]
fn a_witness_sees_the_retry_exchange_it_forwards() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let between = Between::witness(server.local_addr().expect("bound")).expect("bound");
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    client.connect(between.address()).expect("loopback");
    let mut buffer = [0; 64];

    client.send(&long_header(0xc0, &[0])).expect("sent");
    let (_, from) = server.recv_from(&mut buffer).expect("forwarded");
    server
        .send_to(&long_header(0xf0, b"token"), from)
        .expect("sent");
    client.recv(&mut buffer).expect("forwarded");
    client.send(&long_header(0xc0, &[5])).expect("sent");
    server.recv_from(&mut buffer).expect("forwarded");

    let seen = between.finish();
    assert_eq!(seen.as_deref(), Some("1 Retry, 1 Initial with a token"));
}

#[test]
fn a_witness_of_no_retry_says_nothing() {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let between = Between::witness(nowhere).expect("bound");
    assert_eq!(between.finish(), None);
}
