//! What is counted where a peer goes beyond what it may, and when a connection ends.

use std::sync::Arc;

use towline_wire::http3::SettingId;

use super::rules::{CONNECT, DRAFT_16, ask, client, session};
use super::*;
use crate::connection::tests::peer::{Bare, frame, section};
use crate::webtransport::{MAX_EARLY_DATAGRAMS, MAX_EARLY_STREAMS};
use crate::{Count, Counters};

fn count(bare: &Bare, count: Count) -> u64 {
    bare.host.connection.counters().get(count)
}

#[test]
fn refusals_are_counted_by_their_reasons() {
    let mut limited = config();
    limited.webtransport.as_mut().unwrap().max_sessions = 2;
    let mut bare = client(limited, &DRAFT_16);
    let first = session(&mut bare);
    session(&mut bare);
    ask(&mut bare);
    assert_eq!(count(&bare, Count::SessionsTooMany), 1);
    assert_eq!(count(&bare, Count::SessionsRequested), 2);
    assert_eq!(count(&bare, Count::SessionsAccepted), 2);
    // A plain request, one to a proxy, one that is too large, one without a head.
    bare.get();
    let id = bare.open_request();
    bare.say(
        id,
        frame::HEADERS,
        &section(&[(":method", "CONNECT"), (":authority", "a:1")]),
    );
    let id = bare.open_request();
    let long = "x".repeat(100_000);
    let mut fields = CONNECT.to_vec();
    fields.push(("long", &long));
    bare.say(id, frame::HEADERS, &section(&fields));
    let id = bare.open_request();
    bare.finish(id);
    for (of, wanted) in [
        (Count::RequestsReceived, 1),
        (Count::RequestsToProxy, 1),
        (Count::RequestsTooLarge, 1),
        (Count::MessagesRefused, 1),
        (Count::SessionsEnded, 0),
    ] {
        assert_eq!(count(&bare, of), wanted, "{of:?}");
    }
    // A session fails, and then the connection with the other one.
    bare.say(first, frame::DATA, &[0x80, 0x00, 0x28, 0x43, 0x01, 0x00]);
    assert_eq!(count(&bare, Count::SessionsFailed), 1);
    assert_eq!(count(&bare, Count::SessionsEnded), 1);
    bare.say(bare.control, frame::SETTINGS, &[]);
    assert_eq!(count(&bare, Count::ConnectionsFailed), 1);
    assert_eq!(count(&bare, Count::SessionsEnded), 2);
}

#[test]
fn a_client_of_a_version_that_is_not_spoken_is_counted() {
    let mut bare = client(config_of(&[Dialect::Draft07]), &DRAFT_16);
    ask(&mut bare);
    assert_eq!(count(&bare, Count::SessionsUnsupported), 1);
    assert_eq!(count(&bare, Count::SessionsRequested), 0);
}

#[test]
fn streams_and_datagrams_beyond_what_is_held_are_counted() {
    let settings = [
        &DRAFT_16[..],
        &[(SettingId::WT_INITIAL_MAX_STREAMS_UNI, 300)],
    ]
    .concat();
    let mut bare = client(config(), &settings);
    for _ in 0..MAX_EARLY_STREAMS + 3 {
        bare.open_uni(&[0x40, 0x54, 0x00]);
    }
    assert_eq!(count(&bare, Count::StreamsRefused), 3);
    for _ in 0..MAX_EARLY_DATAGRAMS + 2 {
        bare.end.send_datagram(Bytes::from_static(&[0, 1]));
        while bare.host.turn() {}
    }
    assert_eq!(count(&bare, Count::DatagramsDropped), 2);
}

#[test]
fn a_connection_that_goes_takes_its_sessions_along() {
    let counters = Arc::new(Counters::default());
    let mut bare = client(config(), &DRAFT_16);
    bare.host.connection.count_with(Arc::clone(&counters));
    session(&mut bare);
    session(&mut bare);
    assert_eq!(counters.get(Count::SessionsAccepted), 2);
    assert_eq!(counters.get(Count::SessionsEnded), 0);
    drop(bare);
    assert_eq!(counters.get(Count::SessionsEnded), 2);
}
