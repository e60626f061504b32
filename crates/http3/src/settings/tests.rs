use towline_wire::emit_varint;

use super::*;

#[test]
fn what_is_sent_is_what_is_understood() {
    let mut settings = Settings::new();
    settings.set(SettingId::WT_ENABLED, 1);
    let config = Config {
        extended_connect: true,
        datagrams: true,
        settings,
        ..Config::default()
    };
    let server = parse(&emit(&config, Side::Server), true).unwrap();
    assert!(extended_connect(&server) && datagrams(&server));
    assert_eq!(max_field_section_size(&server), Some(65_536));
    assert_eq!(qpack_max_table_capacity(&server), 4096);
    assert_eq!(qpack_blocked_streams(&server), 16);
    assert_eq!(server.get(SettingId::WT_ENABLED), Some(1));
    let client = parse(&emit(&config, Side::Client), true).unwrap();
    assert!(!extended_connect(&client));
}

#[test]
fn http_datagrams_without_quic_datagrams_are_settings_error() {
    let mut payload = Vec::new();
    emit_varint(&mut payload, SettingId::H3_DATAGRAM.as_u64());
    emit_varint(&mut payload, 1);
    assert!(parse(&payload, true).is_ok());
    let error = parse(&payload, false).unwrap_err();
    assert_eq!(error.code, ErrorCode::H3_SETTINGS_ERROR);
}
