use super::*;

#[test]
fn a_setting_with_which_no_connection_can_work_is_named_with_its_range() {
    let plain = TransportConfig::default;
    let ms = Duration::from_millis;
    let most = MAX_VARINT;
    assert_eq!(plain().validate(), Ok(()));
    for (config, setting, range) in [
        (plain().initial_rtt(ms(0)), "initial_rtt", "1ms to 10s"),
        (plain().initial_rtt(ms(10_001)), "initial_rtt", "1ms to 10s"),
        (
            plain().mtu(1199),
            "initial_mtu",
            "1200 bytes to 65527 bytes",
        ),
        (
            plain().initial_mtu(65_528),
            "initial_mtu",
            "1200 bytes to 65527 bytes",
        ),
        (
            plain().min_mtu(1199),
            "min_mtu",
            "1200 bytes to 65527 bytes",
        ),
        (
            plain().min_mtu(1280),
            "initial_mtu",
            "1280 bytes to 65527 bytes",
        ),
        (
            plain().initial_mtu(1400).max_mtu(Some(1399)),
            "max_mtu",
            "1400 bytes to 65527 bytes",
        ),
        (
            plain().max_idle_timeout(Duration::MAX),
            "max_idle_timeout",
            "0ns to 4611686018427387.903s",
        ),
        (
            plain().receive_window(most + 1),
            "receive_window",
            "0 bytes to 4611686018427387903 bytes",
        ),
        (
            plain().max_receive_window(most + 1),
            "max_receive_window",
            "0 bytes to 4611686018427387903 bytes",
        ),
        (
            plain().stream_receive_window(u64::MAX),
            "stream_receive_window",
            "0 bytes to 4611686018427387903 bytes",
        ),
        (
            plain().max_stream_receive_window(u64::MAX),
            "max_stream_receive_window",
            "0 bytes to 4611686018427387903 bytes",
        ),
    ] {
        let error = config.validate().unwrap_err();
        assert_eq!(error.setting, setting);
        let text = error.to_string();
        assert!(text.contains(&format!("`{setting}` is ")), "{text}");
        assert!(text.ends_with(&format!("it can be {range}")), "{text}");
    }
    for possible in [
        plain().initial_rtt(MIN_INITIAL_RTT),
        plain().initial_rtt(MAX_INITIAL_RTT),
        plain().mtu(MIN_MTU),
        plain().mtu(MAX_MTU),
        plain().max_idle_timeout(MAX_IDLE_TIMEOUT),
        plain().receive_window(0).stream_receive_window(most),
        plain().max_concurrent_bidi_streams(u64::MAX),
    ] {
        assert_eq!(possible.validate(), Ok(()));
    }
}

#[test]
fn a_configuration_is_made_in_one_expression() {
    let transport = TransportConfig::default()
        .mtu(1400)
        .keep_alive_interval(Some(Duration::from_secs(3)))
        .max_datagram_frame_size(None)
        .send_buffer(7);
    assert_eq!((transport.initial_mtu, transport.mtu_search), (1400, false));
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
