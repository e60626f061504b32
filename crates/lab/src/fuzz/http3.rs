//! What streams of HTTP/3 consist of: frames, capsules, datagrams, each read and written again.

use towline_wire::http3::{
    Capsule, CapsuleHeader, FrameHeader, FrameType, PriorityUpdate, Settings, parse_datagram,
    parse_id,
};
use towline_wire::{Reader, Writer};

/// Parses `input` as frames, as capsules and as one datagram.
///
/// # Panics
/// When something does not survive being written and read back.
pub fn http3_frames_capsules(input: &[u8]) {
    run(input);
}

/// As [`http3_frames_capsules`]; returns what it saw, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let datagram = parse_datagram(input).map_or(0, |(_, len)| len as u64);
    datagram ^ frames(input) ^ capsules(input).rotate_left(8)
}

fn frames(input: &[u8]) -> u64 {
    let mut signature = 0u64;
    let mut r = Reader::new(input);
    while let Ok(header) = FrameHeader::parse(&mut r) {
        let mut bytes = [0; 16];
        let mut w = Writer::new(&mut bytes);
        header.emit(&mut w);
        assert_eq!(w.len(), header.encoded_len());
        assert_eq!(
            FrameHeader::parse(&mut Reader::new(w.written())),
            Ok(header)
        );
        let payload = usize::try_from(header.len)
            .ok()
            .and_then(|len| r.bytes(len).ok());
        let Some(payload) = payload else {
            break;
        };
        let seen = header.kind.as_u64() << 4 ^ frame(header.kind, payload);
        signature = (signature ^ seen).wrapping_mul(0x0100_0000_01b3);
    }
    signature
}

fn frame(kind: FrameType, payload: &[u8]) -> u64 {
    match kind {
        FrameType::SETTINGS => match Settings::parse(payload) {
            Ok(settings) => {
                let mut again = Vec::new();
                settings.emit(&mut again);
                assert_eq!(again.len(), settings.encoded_len());
                assert_eq!(Settings::parse(&again), Ok(settings));
                settings.iter().count() as u64
            }
            Err(error) => error.code().as_u64(),
        },
        FrameType::GOAWAY | FrameType::MAX_PUSH_ID | FrameType::CANCEL_PUSH => {
            u64::from(parse_id(payload).is_some())
        }
        _ => match PriorityUpdate::parse(payload) {
            Ok(update) => {
                let mut again = vec![0; update.encoded_len()];
                let mut w = Writer::new(&mut again);
                update.emit(&mut w);
                assert!(!w.overflowed() && w.remaining() == 0);
                assert_eq!(PriorityUpdate::parse(&again), Ok(update));
                2
            }
            Err(_) => 3,
        },
    }
}

fn capsules(input: &[u8]) -> u64 {
    let mut signature = 0u64;
    let mut r = Reader::new(input);
    while let Ok(header) = CapsuleHeader::parse(&mut r) {
        let checked = header.check_len();
        let value = usize::try_from(header.len)
            .ok()
            .and_then(|len| r.bytes(len).ok());
        let Some(value) = value else {
            break;
        };
        let seen = match Capsule::parse(header.kind, value) {
            Ok(Some(capsule)) => {
                assert!(checked.is_ok(), "{capsule:?} is longer than it may be");
                assert_eq!(capsule.kind(), header.kind);
                write_and_read_back(&capsule);
                header.kind.as_u64()
            }
            Ok(None) => 1,
            Err(error) => error.code().as_u64(),
        };
        signature = (signature ^ seen).wrapping_mul(0x0100_0000_01b3);
    }
    signature
}

fn write_and_read_back(capsule: &Capsule<'_>) {
    let mut bytes = Vec::new();
    capsule.emit(&mut bytes);
    let mut r = Reader::new(&bytes);
    let header = CapsuleHeader::parse(&mut r).expect("a capsule begins with its header");
    assert_eq!(header.len as usize, r.remaining());
    assert_eq!(
        Capsule::parse(header.kind, r.rest()),
        Ok(Some(*capsule)),
        "{bytes:02x?}"
    );
}
