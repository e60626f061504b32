use super::*;

const BIDI: Direction = Direction::Bidirectional;

/// Both ends permit `data` bytes and `streams` streams of each kind.
fn flow(data: u64, streams: u64) -> Flow {
    let mut settings = Settings::new();
    settings.set(SettingId::WT_INITIAL_MAX_DATA, data);
    settings.set(SettingId::WT_INITIAL_MAX_STREAMS_BIDI, streams);
    settings.set(SettingId::WT_INITIAL_MAX_STREAMS_UNI, streams);
    Flow::new(Dialect::Draft16, &settings, &settings)
}

#[test]
fn what_is_sent_uses_credit_until_the_peer_gives_more() {
    let mut flow = flow(100, 1);
    flow.on_sent(60);
    assert_eq!(flow.send_credit(), 40);
    flow.on_sent(40);
    flow.want_credit();
    assert_eq!(flow.poll_tell(), Some(Tell::DataBlocked(100)));
    flow.want_credit();
    assert_eq!(flow.poll_tell(), None);
    assert_eq!(flow.on_max_data(150), Ok(true));
    assert_eq!(flow.send_credit(), 50);
    assert_eq!(flow.on_max_data(160), Ok(false));
}

#[test]
fn what_a_reset_leaves_unsent_is_credit_again() {
    let mut flow = flow(100, 1);
    flow.on_sent(100);
    assert!(!flow.on_unsent(30));
    assert_eq!(flow.send_credit(), 30);
    flow.on_sent(30);
    flow.want_credit();
    assert!(!flow.on_unsent(0));
    assert!(flow.on_unsent(1));
}

#[test]
fn a_limit_that_does_not_grow_is_a_breach() {
    for max in [0, 99, 100] {
        assert!(flow(100, 1).on_max_data(max).is_err());
    }
    for max in [0, 1] {
        assert!(flow(100, 1).on_max_streams(BIDI, max).is_err());
    }
}

#[test]
fn before_draft_15_a_limit_may_be_said_again_but_not_shrink() {
    let mut settings = Settings::new();
    settings.set(SettingId::WT_INITIAL_MAX_DATA, 100);
    let mut flow = Flow::new(Dialect::Draft14, &settings, &settings);
    flow.want_credit();
    assert_eq!(flow.on_max_data(100), Ok(false));
    assert!(flow.on_max_data(99).is_err());
    assert_eq!(flow.on_max_data(101), Ok(true), "somebody waits still");
}

#[test]
fn streams_are_opened_until_the_limit_and_the_peer_hears_that_one_waits() {
    let mut flow = flow(100, 2);
    for _ in 0..2 {
        assert!(flow.may_open(BIDI));
        flow.on_opened(BIDI);
    }
    assert!(!flow.may_open(BIDI) && flow.may_open(Direction::Unidirectional));
    flow.want_stream(BIDI);
    assert_eq!(flow.poll_tell(), Some(Tell::StreamsBlocked(BIDI, 2)));
    assert_eq!(flow.poll_tell(), None);
    assert_eq!(flow.on_max_streams(BIDI, 3), Ok(true));
    assert!(flow.may_open(BIDI));
}

#[test]
fn the_peer_is_held_to_our_limits() {
    let mut flow = flow(100, 1);
    assert_eq!(flow.on_received(100), Ok(()));
    assert!(flow.on_received(1).is_err());
    assert_eq!(flow.on_stream(BIDI), Ok(()));
    assert!(flow.on_stream(BIDI).is_err());
}

/// Half a window is told at once; the limit never shrinks and is a window ahead at most.
#[test]
fn what_is_read_makes_room_for_as_much() {
    let mut flow = flow(100, 4);
    let mut max = 100;
    for _ in 0..1000 {
        flow.on_received(10).unwrap();
        flow.on_read(10);
        let done = flow.recv_data.done;
        if let Some(tell) = flow.poll_tell() {
            assert_eq!(tell, Tell::MaxData(done + 100));
            assert!(done + 100 >= max + 50);
            max = done + 100;
        }
        assert!(max > done);
    }
    assert!(max > 10_000);
}

#[test]
fn streams_that_are_over_make_room_for_others() {
    for window in [1, 2, 7] {
        let mut flow = flow(100, window);
        for _ in 0..100 {
            flow.on_stream(BIDI).unwrap();
            flow.on_stream_over(BIDI);
        }
        let told = std::iter::from_fn(|| flow.poll_tell()).last();
        let Some(Tell::MaxStreams(BIDI, max)) = told else {
            panic!("a limit");
        };
        assert!(max > 100 && max <= 100 + window);
    }
}

/// Who has used all of a limit does not wait for half of it: the other half may be in use for long.
#[test]
fn a_peer_at_its_limit_is_given_what_there_is() {
    let mut flow = flow(100, 4);
    for _ in 0..4 {
        flow.on_stream(BIDI).unwrap();
    }
    flow.on_stream_over(BIDI);
    assert_eq!(flow.poll_tell(), Some(Tell::MaxStreams(BIDI, 5)));
    flow.on_stream(BIDI).unwrap();
    flow.on_stream_over(BIDI);
    assert_eq!(flow.poll_tell(), Some(Tell::MaxStreams(BIDI, 6)));
    // Not for a byte or two.
    flow.on_received(100).unwrap();
    flow.on_read(5);
    assert_eq!(flow.poll_tell(), None);
    flow.on_read(8);
    assert_eq!(flow.poll_tell(), Some(Tell::MaxData(113)));
}

#[test]
fn a_peer_that_says_it_waits_gets_what_there_is() {
    let mut flow = flow(100, 4);
    flow.on_received(90).unwrap();
    flow.on_read(7);
    flow.on_data_blocked(99);
    assert_eq!(flow.poll_tell(), None);
    flow.on_data_blocked(100);
    assert_eq!(flow.poll_tell(), Some(Tell::MaxData(107)));
    flow.on_data_blocked(107);
    assert_eq!(flow.poll_tell(), None);
    flow.on_stream(BIDI).unwrap();
    flow.on_stream_over(BIDI);
    assert_eq!(flow.poll_tell(), None);
    flow.on_streams_blocked(BIDI, 4);
    assert_eq!(flow.poll_tell(), Some(Tell::MaxStreams(BIDI, 5)));
}

/// A limit of 0 stays 0: nothing was permitted, so nothing can be read.
#[test]
fn a_window_of_nothing_never_opens() {
    let mut flow = flow(0, 0);
    flow.on_read(5);
    flow.on_stream_over(BIDI);
    assert_eq!(flow.poll_tell(), None);
    assert_eq!((flow.send_credit(), flow.may_open(BIDI)), (0, false));
}
