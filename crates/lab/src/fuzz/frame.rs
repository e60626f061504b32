//! A decrypted payload: every frame parsed, measured, written again and read back the same.

use towline_wire::{Frame, Reader, Writer};

/// Parses `input` frame by frame as the payload of a packet.
///
/// # Panics
/// When a frame does not survive being written and read back, or its length was foretold wrongly.
pub fn frame(input: &[u8]) {
    run(input);
}

/// As [`frame`]; returns what it saw, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let mut reader = Reader::new(input);
    let mut signature = 0u64;
    let mut seen = |word: u64| {
        signature = (signature.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    };
    // Later frames add nothing to how the first few are handled.
    for place in 0..1000 {
        if reader.is_empty() {
            break;
        }
        let before = reader.remaining();
        match Frame::parse(&mut reader) {
            Ok(frame) => {
                assert!(
                    reader.remaining() < before,
                    "a frame took no bytes: {frame:?}"
                );
                write_and_read_back(&frame);
                if place < 4 {
                    seen(frame.ty().as_u64() << 8 | u64::from(frame.encoded_len().ilog2()));
                }
            }
            Err(error) => {
                let words = error.what.bytes().map(u64::from).sum::<u64>();
                seen(error.frame_type.unwrap_or(0) << 16 ^ words);
                break;
            }
        }
    }
    signature
}

fn write_and_read_back(frame: &Frame<'_>) {
    let len = frame.encoded_len();
    let mut bytes = vec![0; len];
    let mut writer = Writer::new(&mut bytes);
    frame.write(&mut writer);
    assert!(
        !writer.overflowed(),
        "{frame:?} does not fit in {len} bytes"
    );
    assert_eq!(writer.len(), len, "{frame:?} was measured wrongly");
    let mut reader = Reader::new(&bytes);
    let again = Frame::parse(&mut reader);
    assert_eq!(again.as_ref(), Ok(frame), "{bytes:02x?}");
    assert!(
        reader.is_empty(),
        "{frame:?} left {} bytes",
        reader.remaining()
    );
}
