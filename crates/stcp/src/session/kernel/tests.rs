//! The kernel is played by a sealer of its own, which gets nothing but the key and its number.

use rustls::ContentType;
use towline_identity::Cipher;

use super::*;
use crate::Buffers;
use crate::limits::{MAX_PLAINTEXT, tiny};
use crate::record::{OVERHEAD, Sealer};
use crate::session::tests::{CIPHERS, RECORD, carry, read_all, receive, sessions};

const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const INTERNAL_ERROR: [u8; 2] = [2, 80];

/// A kernel that sends for a session.
struct Kernel(Sealer);

impl Kernel {
    /// Takes the session's key.
    fn of(session: &mut Session) -> Self {
        let (key, sequence) = session.key_for_kernel().unwrap().expect("all is sent");
        let key = match *key {
            CipherKeys::Aes128Gcm { key, iv } => CipherKeys::Aes128Gcm { key, iv },
            CipherKeys::Aes256Gcm { key, iv } => CipherKeys::Aes256Gcm { key, iv },
            CipherKeys::ChaCha20Poly1305 { key, iv } => CipherKeys::ChaCha20Poly1305 { key, iv },
        };
        session.on_kernel_has_key();
        Self(Sealer::new(key, sequence).unwrap())
    }

    fn seal(&mut self, content: ContentType, bytes: &[u8], to: &mut Session) {
        let mut record = [0; MAX_PLAINTEXT + OVERHEAD];
        let len = self.0.seal(content, bytes, &mut record).unwrap();
        receive(to, &record[..len]);
    }

    /// What the session's owner writes to the socket.
    fn write(
        &mut self,
        from: &mut Session,
        bytes: &[u8],
        to: &mut Session,
    ) -> Result<(), SessionError> {
        from.may_write()?;
        self.seal(ContentType::ApplicationData, bytes, to);
        from.on_written(bytes.len() as u64);
        Ok(())
    }

    /// The alert that is due.
    fn alert(&mut self, from: &mut Session, to: &mut Session) -> Option<[u8; 2]> {
        let alert = from.kernel_alert()?;
        self.seal(ContentType::Alert, &alert, to);
        from.on_kernel_alert_sent();
        assert_eq!(from.kernel_alert(), None, "once");
        Some(alert)
    }
}

/// Data of the peer's that arrives.
fn heard(from: &mut Session, to: &mut Session, data: &[u8]) {
    from.write(data, &mut Buffers::new()).unwrap();
    carry(from, to);
    assert_eq!(read_all(to, 400).unwrap(), (data.to_vec(), false));
}

/// A server that sends through a kernel, its kernel and its client, which has its tickets.
fn by_kernel(cipher: Cipher) -> (Session, Kernel, Session) {
    let (mut client, mut server) = sessions(cipher);
    carry(&mut server, &mut client);
    let kernel = Kernel::of(&mut server);
    (server, kernel, client)
}

fn is_key_ended(result: Result<(), SessionError>) -> bool {
    matches!(result, Err(SessionError::KernelKeyEnded))
}

#[test]
fn the_kernel_goes_on_where_our_records_ended() {
    for cipher in CIPHERS {
        let (mut client, mut server) = sessions(cipher);
        server.write(b"ours, ", &mut Buffers::new()).unwrap();
        assert!(server.key_for_kernel().unwrap().is_none(), "not sent yet");
        carry(&mut server, &mut client);
        let mut kernel = Kernel::of(&mut server);
        assert!(server.is_kernel_sending());
        kernel
            .write(&mut server, b"the kernel's", &mut client)
            .unwrap();
        let got = read_all(&mut client, 100).unwrap();
        assert_eq!(got, (b"ours, the kernel's".to_vec(), false));
        heard(&mut client, &mut server, b"answer");
        server.close_write().unwrap();
        assert!(server.output().is_empty());
        assert_eq!(kernel.alert(&mut server, &mut client), Some(CLOSE_NOTIFY));
        assert_eq!(read_all(&mut client, 100).unwrap(), (Vec::new(), true));
        let error = server.may_write().unwrap_err();
        assert!(matches!(error, SessionError::WriteAfterClose));
        assert!(server.key_for_kernel().is_err());
    }
}

#[test]
fn a_new_key_of_the_peers_is_followed_while_the_kernel_sends() {
    for cipher in CIPHERS {
        let (mut server, mut kernel, mut client) = by_kernel(cipher);
        for round in 0..20 {
            client.request_key_update(false).unwrap();
            heard(&mut client, &mut server, &[round; 100]);
            kernel
                .write(&mut server, &[round; 50], &mut client)
                .unwrap();
            assert_eq!(read_all(&mut client, 100).unwrap().0, [round; 50]);
        }
    }
}

#[test]
fn after_a_request_for_a_key_that_the_kernel_cannot_have_nothing_is_written_and_reading_goes_on() {
    let (mut server, mut kernel, mut client) = by_kernel(Cipher::ChaCha20);
    kernel.write(&mut server, b"before", &mut client).unwrap();
    client.request_key_update(true).unwrap();
    heard(&mut client, &mut server, b"with a new key");
    assert!(is_key_ended(kernel.write(&mut server, b"no", &mut client)));
    assert_eq!(
        read_all(&mut client, 100).unwrap(),
        (b"before".to_vec(), false)
    );
    for round in 0..20 {
        client.request_key_update(round % 2 == 0).unwrap();
        heard(&mut client, &mut server, &[round; 100]);
    }
    assert!(is_key_ended(server.may_write()), "and it stays so");
    client.close_write().unwrap();
    carry(&mut client, &mut server);
    assert_eq!(read_all(&mut server, 100).unwrap(), (Vec::new(), true));
    // The peer must not take what it has for all there is.
    assert!(is_key_ended(server.close_write()));
    assert_eq!(server.kernel_alert(), None);
}

#[test]
fn who_has_written_everything_ends_in_order_though_a_new_key_was_asked_for() {
    let (mut server, mut kernel, mut client) = by_kernel(Cipher::Aes128Gcm);
    kernel.write(&mut server, b"all", &mut client).unwrap();
    client.request_key_update(true).unwrap();
    heard(&mut client, &mut server, b"with a new key");
    server.close_write().unwrap();
    assert_eq!(kernel.alert(&mut server, &mut client), Some(CLOSE_NOTIFY));
    assert_eq!(read_all(&mut client, 100).unwrap(), (b"all".to_vec(), true));
    server.close_write().unwrap();
    assert_eq!(server.kernel_alert(), None, "once");
}

#[test]
fn a_peer_that_asks_for_keys_and_does_not_read_makes_no_output_grow() {
    let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
    server.write(&[7; 50_000], &mut Buffers::new()).unwrap();
    let len = server.output().len();
    for _ in 0..1000 {
        client.request_key_update(true).unwrap();
        client.write(b"x", &mut Buffers::new()).unwrap();
        carry(&mut client, &mut server);
        read_all(&mut server, 100).unwrap();
        assert!(server.key_for_kernel().unwrap().is_none());
    }
    // One answer does for all of them.
    assert!(server.output().len() < len + 100);
}

#[test]
fn until_the_kernel_has_the_key_it_is_changed_as_ever() {
    let (mut client, mut server) = sessions(Cipher::Aes256Gcm);
    carry(&mut server, &mut client);
    for round in 0..5 {
        client.request_key_update(true).unwrap();
        heard(&mut client, &mut server, &[round; 10]);
        heard(&mut server, &mut client, &[round; 20]);
    }
    // The answer to the last request goes before the kernel gets a key.
    client.request_key_update(true).unwrap();
    heard(&mut client, &mut server, b"last");
    assert!(server.key_for_kernel().unwrap().is_none());
    carry(&mut server, &mut client);
    assert_eq!(
        server.key_for_kernel().unwrap().unwrap().1,
        0,
        "a fresh one"
    );
    let mut kernel = Kernel::of(&mut server);
    kernel.write(&mut server, b"a file", &mut client).unwrap();
    assert_eq!(read_all(&mut client, 100).unwrap().0, b"a file");
}

#[test]
fn a_key_near_its_limit_is_changed_before_the_kernel_has_it() {
    tiny::with(10 * RECORD, 12 * RECORD, || {
        let (mut client, mut server) = sessions(Cipher::Aes128Gcm);
        for _ in 0..10 {
            heard(&mut server, &mut client, &[7; 1000]);
        }
        assert!(server.key_for_kernel().unwrap().is_none());
        carry(&mut server, &mut client);
        let mut kernel = Kernel::of(&mut server);
        for _ in 0..10 {
            kernel.write(&mut server, &[7; 1000], &mut client).unwrap();
            assert_eq!(read_all(&mut client, 2000).unwrap().0.len(), 1000);
        }
    });
}

#[test]
fn the_kernels_key_is_never_used_beyond_its_limit_and_no_end_in_order_follows() {
    tiny::with(100 * RECORD, 120 * RECORD, || {
        let (mut server, mut kernel, mut client) = by_kernel(Cipher::Aes128Gcm);
        // What is counted for a write of unknown records is a block more than ours.
        let mut written = 0;
        while kernel.write(&mut server, &[1; 1000], &mut client).is_ok() {
            written += 1;
            assert_eq!(read_all(&mut client, 2000).unwrap().0.len(), 1000);
        }
        assert!((117..=120).contains(&written), "{written}");
        assert!(is_key_ended(server.close_write()));
        assert_eq!(kernel.alert(&mut server, &mut client), None);
        assert!(is_key_ended(server.may_write()));
        for _ in 0..3 {
            heard(&mut client, &mut server, b"reading goes on");
        }
    });
    // ChaCha20-Poly1305 has no limit worth counting.
    let (mut server, _, _) = by_kernel(Cipher::ChaCha20);
    server.on_written(400 << 30);
    server.may_write().unwrap();
}

#[test]
fn a_peer_that_cannot_be_asked_for_a_new_key_is_read_to_the_limit_and_told() {
    let (client, server) = tiny::with(10 * RECORD, 12 * RECORD, || sessions(Cipher::Aes128Gcm));
    let (mut client, mut server) = (client, server);
    carry(&mut server, &mut client);
    let mut kernel = Kernel::of(&mut server);
    let mut peer = Kernel::of(&mut client);
    for round in 0..12 {
        peer.seal(ContentType::ApplicationData, &[round; 1000], &mut server);
        assert_eq!(read_all(&mut server, 400).unwrap().0, [round; 1000]);
    }
    assert_eq!(server.kernel_alert(), None, "nothing is asked");
    server.may_write().unwrap();
    peer.seal(ContentType::ApplicationData, b"one too many", &mut server);
    let error = read_all(&mut server, 400).unwrap_err();
    assert!(matches!(error, SessionError::KeyExhausted), "{error}");
    assert_eq!(kernel.alert(&mut server, &mut client), Some(INTERNAL_ERROR));
}

#[test]
fn the_kernel_sends_the_alert_that_says_what_the_peer_did_wrong() {
    let (mut server, mut kernel, mut client) = by_kernel(Cipher::Aes128Gcm);
    receive(
        &mut server,
        &[
            23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
        ],
    );
    let error = read_all(&mut server, 100).unwrap_err();
    assert!(matches!(error, SessionError::BadRecord), "{error}");
    assert!(matches!(server.may_write(), Err(SessionError::BadRecord)));
    assert!(server.output().is_empty());
    assert_eq!(kernel.alert(&mut server, &mut client), Some([2, 20]));
    let error = read_all(&mut client, 100).unwrap_err();
    assert!(matches!(error, SessionError::Alert(_)), "{error}");
    assert_eq!(client.kernel_alert(), None, "it knows");
}

#[test]
fn what_only_our_own_records_can_do_is_refused_and_harms_nothing() {
    let (mut server, mut kernel, mut client) = by_kernel(Cipher::Aes128Gcm);
    assert!(is_key_ended(server.request_key_update(true)));
    assert!(matches!(
        server.key_for_kernel(),
        Err(SessionError::KernelKeyEnded)
    ));
    kernel
        .write(&mut server, b"still here", &mut client)
        .unwrap();
    assert_eq!(read_all(&mut client, 100).unwrap().0, b"still here");
}
