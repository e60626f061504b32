//! What one session's peer does wrong, and what another session on the connection sees of it: nothing.

use towline_wire::http3::{Capsule, SettingId};

use super::rules::{capsule, client, draft_16, narrow, open, prefix, session};
use super::*;
use crate::connection::tests::peer::{Bare, frame};

/// What a client does wrong on a session, and what it is told.
type Breach = (fn(&mut Bare, SessionId), ErrorCode);

const BREACHES: [Breach; 12] = [
    // A capsule of the limits of single streams.
    (
        |bare, id| raw(bare, id, &[0x99, 0x0b, 0x4d, 0x3e, 1, 0]),
        ErrorCode::H3_DATAGRAM_ERROR,
    ),
    // A drain capsule with a value.
    (
        |bare, id| raw(bare, id, &[0x80, 0x00, 0x78, 0xae, 1, 0]),
        ErrorCode::H3_DATAGRAM_ERROR,
    ),
    // A limit that is cut off, and one that is longer than it says.
    (
        |bare, id| raw(bare, id, &[0x99, 0x0b, 0x4d, 0x3d, 1, 0x40]),
        ErrorCode::H3_DATAGRAM_ERROR,
    ),
    (
        |bare, id| raw(bare, id, &[0x99, 0x0b, 0x4d, 0x3d, 2, 1, 1]),
        ErrorCode::H3_DATAGRAM_ERROR,
    ),
    // A close with too many words, with words that are none, and with something behind it.
    (
        |bare, id| raw(bare, id, &[0x68, 0x43, 0x44, 0x05]),
        ErrorCode::H3_MESSAGE_ERROR,
    ),
    (
        |bare, id| raw(bare, id, &[0x68, 0x43, 5, 0, 0, 0, 0, 0xff]),
        ErrorCode::H3_MESSAGE_ERROR,
    ),
    // A capsule that is cut off.
    (
        |bare, id| {
            raw(bare, id, &[0x68, 0x43, 9]);
            bare.finish(id);
        },
        ErrorCode::H3_MESSAGE_ERROR,
    ),
    // Limits that do not grow, or go beyond what there can be.
    (
        |bare, id| capsule(bare, id, Capsule::MaxData(1)),
        ErrorCode::WT_FLOW_CONTROL_ERROR,
    ),
    (
        |bare, id| capsule(bare, id, Capsule::MaxStreams(UNI, 0)),
        ErrorCode::WT_FLOW_CONTROL_ERROR,
    ),
    (
        |bare, id| capsule(bare, id, Capsule::MaxStreams(BIDI, (1 << 60) + 1)),
        ErrorCode::WT_FLOW_CONTROL_ERROR,
    ),
    // More streams and more bytes than the session permits.
    (
        |bare, id| {
            for _ in 0..4 {
                open(bare, UNI, id);
            }
        },
        ErrorCode::WT_FLOW_CONTROL_ERROR,
    ),
    (
        |bare, id| {
            let stream = open(bare, UNI, id);
            bare.bytes(stream, &[0; 101]);
        },
        ErrorCode::WT_FLOW_CONTROL_ERROR,
    ),
];

fn raw(bare: &mut Bare, session: SessionId, bytes: &[u8]) {
    bare.say(session, frame::DATA, bytes);
}

#[test]
fn a_breach_ends_its_session_and_leaves_the_other_with_its_streams_and_datagrams() {
    for (index, (breach, code)) in BREACHES.into_iter().enumerate() {
        let streams = [(SettingId::WT_INITIAL_MAX_STREAMS_UNI, 5)];
        let mut bare = client(narrow(), &[&draft_16()[..], &streams].concat());
        let [bystander, breaker] = [session(&mut bare), session(&mut bare)];
        let begun = open(&mut bare, BIDI, bystander);
        assert_eq!(bare.host.opened(), begun);
        bare.bytes(begun, b"half");
        let reply = bare.host.open(bystander, UNI).expect("a stream");

        breach(&mut bare, breaker);
        let ended = bare.host.events.drain(..).find_map(|event| match event {
            Event::Session(SessionEvent::Closed { session, reason }) => Some((session, reason)),
            _ => None,
        });
        let Some((session, SessionEnd::Failed(error))) = ended else {
            panic!("{index}: {ended:?}");
        };
        assert_eq!((session, error.code), (breaker, code), "{index}");
        assert_eq!(
            bare.host.end.reset_code(breaker),
            Some(code.as_u64()),
            "{index}"
        );
        assert_eq!(bare.host.connection.sessions(), 1);
        bare.host.connection.check();

        // The other goes on where it was.
        for id in [begun, reply, bystander] {
            assert_eq!(
                (bare.host.end.reset_code(id), bare.host.end.stop_code(id)),
                (None, None)
            );
        }
        bare.bytes(begun, b" and half");
        assert_eq!(bare.host.hear(begun), b"half and half");
        bare.host.write_all(reply, b"answer");
        let mut heard = prefix(UNI, bystander.as_u64());
        heard.extend_from_slice(b"answer");
        assert_eq!(bare.end.take(reply), heard);
        let datagram = [&[(bystander.as_u64() / 4) as u8][..], b"tick"].concat();
        assert!(bare.end.send_datagram(datagram.into()));
        while bare.host.turn() {}
        assert!(matches!(bare.host.next(),
            Event::Datagram { id, payload } if id == bystander && payload == "tick"));
        capsule(
            &mut bare,
            bystander,
            Capsule::CloseSession {
                code: 7,
                message: "done",
            },
        );
        assert!(matches!(bare.host.ended(),
            (of, SessionEnd::Closed { code: 7, by_peer: true, .. }) if of == bystander));
    }
}
