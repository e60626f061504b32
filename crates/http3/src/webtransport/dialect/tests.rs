use http::{HeaderMap, HeaderValue};

use super::*;
use crate::webtransport::{Config, offer};

fn settings(values: &[(SettingId, u64)]) -> Settings {
    let mut settings = Settings::new();
    for (id, value) in values {
        settings.set(*id, *value);
    }
    settings
}

/// What a server of these dialects says.
fn server(dialects: &[Dialect]) -> Settings {
    let mut settings = settings(&[
        (SettingId::ENABLE_CONNECT_PROTOCOL, 1),
        (SettingId::H3_DATAGRAM, 1),
    ]);
    let config = Config {
        dialects: Dialects::of(dialects),
        ..Config::default()
    };
    offer(&config, Side::Server, &mut settings);
    settings
}

#[test]
fn the_rows_are_in_the_order_of_the_dialects() {
    for (index, dialect) in Dialect::ALL.into_iter().enumerate() {
        assert_eq!(DIALECTS[index].dialect, dialect);
        assert!(Dialects::ALL.contains(dialect));
        assert!(!Dialects::of(&[]).contains(dialect));
    }
}

#[test]
fn the_newest_dialect_of_both_ends_is_spoken() {
    use Dialect::{Draft02, Draft07, Draft14, Draft16};
    let cases = [
        (Dialects::ALL, &Dialect::ALL[..], Draft16),
        (Dialects::ALL, &[Draft02], Draft02),
        (Dialects::ALL, &[Draft02, Draft07], Draft07),
        (Dialects::of(&[Draft07, Draft14]), &Dialect::ALL, Draft14),
        (
            Dialects::of(&[Draft07, Draft14]),
            &[Draft07, Draft16],
            Draft07,
        ),
    ];
    for (offered, theirs, chosen) in cases {
        assert_eq!(of_server(offered, &server(theirs)), Ok(chosen));
    }
}

#[test]
fn what_a_server_lacks_is_said_in_words() {
    use Dialect::{Draft02, Draft16};
    let none = of_server(Dialects::of(&[Draft02]), &server(&[Draft16]));
    assert_eq!(none, Err(NO_DIALECT));
    let enabled = (SettingId::WT_ENABLED, 1);
    let datagrams = (SettingId::H3_DATAGRAM, 1);
    let connect = (SettingId::ENABLE_CONNECT_PROTOCOL, 1);
    let lacking = |values: &[_]| of_server(Dialects::ALL, &settings(values));
    assert_eq!(lacking(&[enabled, datagrams]), Err(NO_CONNECT));
    assert_eq!(lacking(&[enabled, connect]), Err(NO_DATAGRAMS));
    assert_eq!(lacking(&[enabled, connect, datagrams]), Ok(Draft16));
    let zero = [(SettingId::WT_ENABLED, 0), datagrams, connect];
    assert_eq!(lacking(&zero), Err(NO_DIALECT));
}

/// aioquic and older browsers say these alone.
#[test]
fn draft_02_implies_connect_and_has_an_older_setting_for_datagrams() {
    let theirs = settings(&[
        (SettingId::ENABLE_WEBTRANSPORT_DRAFT02, 1),
        (SettingId::H3_DATAGRAM_DRAFT, 1),
    ]);
    assert_eq!(of_server(Dialects::ALL, &theirs), Ok(Dialect::Draft02));
}

#[test]
fn a_request_is_of_the_newest_dialect_with_its_token() {
    let none = HeaderMap::new();
    let all = server(&Dialect::ALL);
    let of = |theirs: &Settings, token: &str, fields: &HeaderMap| {
        of_client(Dialects::ALL, theirs, token.as_bytes(), fields)
    };
    assert_eq!(of(&all, "webtransport-h3", &none), Ok(Dialect::Draft16));
    assert_eq!(of(&all, "webtransport", &none), Ok(Dialect::Draft14));
    let old = server(&[Dialect::Draft07]);
    assert_eq!(of(&old, "webtransport", &none), Ok(Dialect::Draft07));
    assert_eq!(of(&old, "webtransport-h3", &none), Err(OTHER_TOKEN));
    let bare = settings(&[(SettingId::H3_DATAGRAM, 1)]);
    assert_eq!(of(&bare, "webtransport", &none), Err(NO_DIALECT));
    let mut fields = HeaderMap::new();
    let value = HeaderValue::from_static("1");
    fields.insert("sec-webtransport-http3-draft02", value);
    assert_eq!(of(&bare, "webtransport", &fields), Ok(Dialect::Draft02));
    assert!(is_token(b"webtransport") && is_token(b"webtransport-h3"));
    assert!(!is_token(b"websocket"));
}

#[test]
fn an_applications_codes_go_there_and_back_in_each_dialect() {
    for dialect in Dialect::ALL {
        for code in [0, 7, 29, 30, 255, 300, u32::MAX] {
            let http3 = dialect.to_http3(code).as_u64();
            assert_eq!(dialect.to_application(http3), Some(code), "{dialect:?}");
        }
        assert_eq!(dialect.to_http3(0).as_u64(), 0x52e4_a40f_a8db);
        let gone = ErrorCode::WT_SESSION_GONE.as_u64();
        assert_eq!(dialect.to_application(gone), None);
    }
}

#[test]
fn sessions_have_limits_where_both_ends_ask_for_them() {
    let ours = server(&Dialect::ALL);
    let limits = |dialect: Dialect, theirs: &[_]| dialect.limits_sessions(&ours, &settings(theirs));
    let data = (SettingId::WT_INITIAL_MAX_DATA, 1);
    let one = (SettingId::WT_MAX_SESSIONS_DRAFT14, 1);
    let two = (SettingId::WT_MAX_SESSIONS_DRAFT14, 2);
    assert!(limits(Dialect::Draft16, &[data]));
    assert!(!limits(Dialect::Draft16, &[two]));
    assert!(limits(Dialect::Draft14, &[one, data]));
    assert!(limits(Dialect::Draft14, &[two]));
    assert!(!limits(Dialect::Draft14, &[one]));
    assert!(!limits(Dialect::Draft07, &[two, data]));
}
