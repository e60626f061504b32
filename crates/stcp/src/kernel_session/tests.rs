use super::*;
use crate::limits::MAX_RECORDS_WITHOUT_DATA;
use crate::session::tests::{CIPHERS, kernel_keys};
use towline_identity::Cipher;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

fn session(cipher: Cipher) -> KernelSession {
    let (keys, schedule) = kernel_keys(cipher);
    KernelSession::new(&keys, schedule)
}

#[test]
fn close_notify_is_the_end_and_anything_else_is_not() {
    for cipher in CIPHERS {
        let mut it = session(cipher);
        assert!(matches!(it.handle_eof(), Err(SessionError::Truncated)));
        it.handle_record(ALERT, &CLOSE_NOTIFY).unwrap();
        assert!(it.is_read_closed());
        it.handle_eof().unwrap();
    }
    let error = session(Cipher::Aes128Gcm).handle_record(ALERT, &[2, 20]);
    assert!(matches!(
        error,
        Err(SessionError::Alert(AlertDescription::BadRecordMac))
    ));
    for (content, bytes) in [(ALERT, &[1][..]), (20, &[1]), (HANDSHAKE, &[])] {
        let error = session(Cipher::Aes128Gcm).handle_record(content, bytes);
        assert!(matches!(error, Err(SessionError::PeerMisbehaved { .. })));
    }
}

#[test]
fn a_new_key_of_the_peers_cannot_be_followed_and_ends_the_stream_in_order() {
    let mut it = session(Cipher::ChaCha20);
    assert_eq!(it.last_words(), None);
    let error = it.handle_record(HANDSHAKE, &[24, 0, 0, 1, 0]);
    assert!(matches!(error, Err(SessionError::KeyExhausted)));
    assert!(matches!(it.alive(), Err(SessionError::KeyExhausted)));
    assert!(matches!(it.may_write(), Err(SessionError::KeyExhausted)));
    assert_eq!(it.last_words(), Some(CLOSE_NOTIFY));
    it.on_write_closed();
    assert_eq!(it.last_words(), None, "nothing after our end");
}

#[test]
fn the_peer_is_told_what_it_did_wrong() {
    let mut it = session(Cipher::Aes128Gcm);
    assert!(matches!(it.on_bad_record(), SessionError::BadRecord));
    assert_eq!(it.last_words(), Some([2, 20]));
    assert!(matches!(it.may_write(), Err(SessionError::BadRecord)));
    let mut it = session(Cipher::Aes128Gcm);
    it.handle_record(ALERT, &[2, 20]).unwrap_err();
    assert_eq!(it.last_words(), None, "it knows");
}

#[test]
fn a_message_in_pieces_is_joined_and_no_data_comes_between() {
    let mut it = session(Cipher::Aes128Gcm);
    it.handle_record(HANDSHAKE, &[4, 0, 0]).unwrap();
    assert!(it.on_data(10).is_err());
}

#[test]
fn records_without_data_are_a_game_that_ends() {
    let mut it = session(Cipher::Aes128Gcm);
    for _ in 0..3 {
        for _ in 0..MAX_RECORDS_WITHOUT_DATA {
            it.handle_record(ALERT, &[1, 90]).unwrap();
            it.on_record_without_data().unwrap();
        }
        it.on_data(1).unwrap();
    }
    for _ in 0..MAX_RECORDS_WITHOUT_DATA {
        it.on_record_without_data().unwrap();
    }
    assert!(matches!(
        it.on_record_without_data(),
        Err(SessionError::PeerMisbehaved { .. })
    ));
    assert!(it.alive().is_err());
    assert_eq!(it.last_words(), Some([2, 10]), "unexpected_message");
}

#[test]
fn a_key_is_counted_in_both_directions_and_never_used_beyond() {
    let mut it = session(Cipher::Aes128Gcm);
    it.on_written(1000);
    it.may_write().unwrap();
    it.on_written(400 << 30);
    assert!(matches!(it.may_write(), Err(SessionError::KeyExhausted)));
    it.on_data(1000).unwrap();
    assert!(matches!(
        it.on_data(400 << 30),
        Err(SessionError::KeyExhausted)
    ));
    let mut free = session(Cipher::ChaCha20);
    free.on_written(400 << 30);
    free.may_write().unwrap();
    free.on_write_closed();
    assert!(matches!(
        free.may_write(),
        Err(SessionError::WriteAfterClose)
    ));
}
