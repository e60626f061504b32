use super::*;

#[test]
fn a_sealed_packet_is_hidden_and_opens_only_for_its_own_direction() {
    let line = Line::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket with offloads");
    let payload = [7; 100];
    let mut packet = [0; HEADER + 100 + TAG];
    line.seal(&mut packet, 5, Role::Client, &payload)
        .expect("sealed");
    assert!(!packet.windows(8).any(|window| window == [7; 8]));
    assert_ne!(
        packet[HEADER - NUMBER..HEADER],
        5u32.to_be_bytes(),
        "the number is masked"
    );
    let mut copy = packet;
    assert!(line.open(&mut copy, Role::Server).is_err());
    assert_eq!(
        line.open(&mut packet, Role::Client).ok(),
        Some(&payload[..])
    );
}
