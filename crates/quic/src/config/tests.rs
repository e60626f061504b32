use super::*;

#[test]
fn a_configuration_is_made_in_one_expression() {
    let transport = TransportConfig::default()
        .mtu(1400)
        .keep_alive_interval(Some(Duration::from_secs(3)))
        .max_datagram_frame_size(None)
        .send_buffer(7);
    assert_eq!(transport.mtu, 1400);
    assert_eq!(transport.keep_alive_interval, Some(Duration::from_secs(3)));
    assert_eq!(transport.max_datagram_frame_size, None);
    assert_eq!(transport.send_buffer, 7);
    let rest = TransportConfig::default();
    assert_eq!(transport.stream_send_buffer, rest.stream_send_buffer);
    let endpoint = EndpointConfig::from_seed([1; 32])
        .memory_limit(1 << 20)
        .cid_generator(Box::new(ShardedCid::new(9)));
    assert_eq!(endpoint.memory_limit, 1 << 20);
    assert_eq!(endpoint.cid_generator.cid_len(), 8);
}
