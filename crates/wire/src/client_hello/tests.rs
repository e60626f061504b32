use super::*;

fn long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = kind.to_be_bytes().to_vec();
    long(&mut out, body);
    out
}

fn alpn(names: &[&str]) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names {
        list.push(name.len() as u8);
        list.extend_from_slice(name.as_bytes());
    }
    let mut body = Vec::new();
    long(&mut body, &list);
    extension(ALPN, &body)
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3; FIXED_LEN];
    body.extend_from_slice(&[4, 7, 7, 7, 7]);
    long(&mut body, &[0x13, 1, 0x13, 3]);
    body.extend_from_slice(&[1, 0]);
    long(&mut body, &extensions.concat());
    let mut message = vec![CLIENT_HELLO, 0];
    long(&mut message, &body);
    message
}

fn offered(message: &[u8]) -> Vec<&[u8]> {
    offered_protocols(message).collect()
}

#[test]
fn protocols_are_read_in_the_clients_order() {
    let server_name = extension(0, &[0, 9, 0, 0, 6, b'a', b'.', b't', b'e', b's', b't']);
    let mut message = hello(&[
        server_name,
        alpn(&["h3", "towline-link"]),
        extension(57, &[]),
    ]);
    assert_eq!(handshake_message_len(&message), Some(message.len()));
    assert_eq!(offered(&message), [&b"h3"[..], b"towline-link"]);
    // What follows in the stream is another message's.
    message.extend_from_slice(&hello(&[]));
    assert_eq!(offered(&message), [&b"h3"[..], b"towline-link"]);
}

#[test]
fn no_protocol_is_offered_by_what_is_no_hello_or_has_no_list() {
    let none: [&[u8]; 0] = [];
    assert_eq!(offered(&hello(&[])), none);
    assert_eq!(offered(&hello(&[alpn(&[])])), none);
    let mut finished = hello(&[alpn(&["h3"])]);
    finished[0] = 20;
    assert_eq!(offered(&finished), none);
    let whole = hello(&[alpn(&["h3"])]);
    for end in 0..whole.len() {
        assert_eq!(offered(&whole[..end]), none, "cut at {end}");
    }
    assert_eq!(handshake_message_len(&whole[..3]), None);
}

#[test]
fn every_length_that_lies_is_survived() {
    let whole = hello(&[extension(43, &[2, 3, 4]), alpn(&["h3", "link"])]);
    for at in 0..whole.len() {
        for value in [0, 1, 127, 255] {
            let mut lie = whole.clone();
            lie[at] = value;
            assert!(
                offered(&lie)
                    .iter()
                    .all(|name| (1..=255).contains(&name.len()))
            );
        }
    }
}
