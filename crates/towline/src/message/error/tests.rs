use super::*;
use crate::message::Refusal;

#[test]
fn texts_say_whose_fault_it_is_and_what_next() {
    let declared = MAX_VARINT;
    let limit = 100;
    let texts = [
        (
            MessageError::OverLimit {
                declared: Some(declared),
                limit,
            }
            .to_string(),
            "the sender declares 4611686018427387903 bytes, this reader takes at most 100; \
             read it in parts, or raise the limit",
        ),
        (
            MessageError::OverLimit {
                declared: None,
                limit,
            }
            .to_string(),
            "the sender sends more than the 100 bytes this reader takes; \
             read it in parts, or raise the limit",
        ),
        (
            MessageError::TooShort {
                declared,
                received: 1,
            }
            .to_string(),
            "the sender declared 4611686018427387903 bytes and ended the message after 1: \
             its fault, throw away what was read",
        ),
        (
            MessageError::Aborted(CODE_RELAY_LOST).to_string(),
            "the sender aborted the message with code 0x4d03: a relay lost its other connection",
        ),
        (
            SendMessageError::Stopped(CODE_MALFORMED).to_string(),
            "the receiver stopped the message with code 0x4d01: \
             it breaks the format or its own declaration",
        ),
        (
            SendMessageError::Stopped(7).to_string(),
            "the receiver stopped the message with code 0x7",
        ),
        (
            SendMessageError::ImpossibleLength { declared: u64::MAX }.to_string(),
            "18446744073709551615 bytes were to be declared; \
             a message has at most 4611686018427387903",
        ),
        (
            Refusal::EndsInHeader.to_string(),
            "the peer ended a stream inside the header of a message; \
             the stream is dropped, no other",
        ),
    ];
    for (text, expected) in texts {
        assert_eq!(text, expected);
    }
}
