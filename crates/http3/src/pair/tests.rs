use super::*;

#[test]
fn a_full_window_blocks_until_it_is_read() {
    let limits = Limits {
        window: 4,
        ..Limits::default()
    };
    let (mut client, mut server) = pair(limits);
    let id = client.open(Direction::Bidirectional).unwrap();
    let mut data = Bytes::from_static(b"abcdef");
    assert_eq!(client.write(id, &mut data), Ok(4));
    assert_eq!(client.write(id, &mut data), Err(WriteError::Blocked));
    assert_eq!(
        server.poll_notice(),
        Some(Notice::Opened(Direction::Bidirectional))
    );
    assert_eq!(server.accept(Direction::Bidirectional), Some(id));
    assert_eq!(server.poll_notice(), Some(Notice::Readable(id)));
    assert_eq!(server.read(id, 3).unwrap().unwrap(), "abc");
    assert_eq!(client.poll_notice(), Some(Notice::Writable(id)));
    assert_eq!(client.write(id, &mut data), Ok(2));
    client.finish(id);
    assert_eq!(server.take(id), b"def");
    assert_eq!(server.read(id, 1), Err(ReadError::Closed));
}

#[test]
fn streams_beyond_the_limit_open_when_it_grows() {
    let limits = Limits {
        streams: [1, 0],
        ..Limits::default()
    };
    let (mut client, _server) = pair(limits);
    assert!(client.open(Direction::Bidirectional).is_some());
    assert_eq!(client.open(Direction::Bidirectional), None);
    client.permit(Direction::Bidirectional, 1);
    assert_eq!(
        client.poll_notice(),
        Some(Notice::Available(Direction::Bidirectional))
    );
    assert!(client.open(Direction::Bidirectional).is_some());
    assert_eq!(client.open(Direction::Unidirectional), None);
}

#[test]
fn what_one_end_gives_up_the_other_hears_of() {
    let (mut client, mut server) = pair(Limits::default());
    let id = client.open(Direction::Bidirectional).unwrap();
    client.push(id, b"lost");
    client.reset(id, 7);
    assert_eq!(client.reset_code(id), Some(7));
    assert_eq!(server.read(id, 1), Err(ReadError::Reset(7)));
    client.stop(id, 8);
    assert_eq!(client.stop_code(id), Some(8));
    assert_eq!(
        server.write(id, &mut Bytes::from_static(b"x")),
        Err(WriteError::Stopped(8))
    );
    server.set_priority(id, -2);
    assert_eq!((server.priority(id), client.priority(id)), (-2, 0));
    server.close(9, b"done");
    assert_eq!(server.closed(), Some((9, "done".to_owned())));
}

#[test]
fn datagrams_have_a_longest_length() {
    let (mut client, mut server) = pair(Limits::default());
    assert_eq!(client.max_datagram_len(), Some(1200));
    assert!(client.send_datagram(Bytes::from_static(b"one")));
    assert!(!client.send_datagram(Bytes::from(vec![0; 1201])));
    assert_eq!(server.recv_datagram().unwrap(), "one");
    assert_eq!(server.recv_datagram(), None);
}
