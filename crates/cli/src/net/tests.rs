use super::*;

/// A full manifest stream beside full lanes once used up the connection's credit: the
/// receiver read no manifest before a file was settled, and no file could be settled.
#[test]
fn an_unread_manifest_leaves_credit_for_the_lanes_from_the_start() {
    let transport =
        receiving_options(Duration::from_secs(15), &CongestionArgs::default()).transport;
    assert!(transport.stream_receive_window <= transport.max_stream_receive_window);
    assert!(transport.receive_window >= 2 * transport.max_stream_receive_window);
    assert!(transport.max_receive_window >= transport.receive_window);
}

#[test]
fn our_own_reason_is_shown_without_the_wrapping_of_the_library() {
    let wrapped = "invalid peer certificate: Other(OtherError(the pin differs))";
    assert_eq!(plain(wrapped), "the pin differs");
    assert_eq!(plain("anything else"), "anything else");
}

#[test]
fn errors_end_with_their_documented_codes() {
    let application = |reason: Reason| {
        ConnectionError::ClosedByPeer(Close::Application {
            code: reason.code(),
            reason: b"bye\x1b".to_vec(),
        })
    };
    let refusal = |code| {
        ConnectionError::ClosedByPeer(Close::Transport {
            code,
            frame: None,
            reason: "full\x1b".to_owned(),
        })
    };
    for (error, exit) in [
        (
            ConnectionError::TimedOut(TimeoutReason::Idle),
            Exit::Timeout,
        ),
        (
            ConnectionError::TimedOut(TimeoutReason::Handshake),
            Exit::Connect,
        ),
        (ConnectionError::StatelessReset, Exit::Timeout),
        (ConnectionError::VersionMismatch, Exit::Protocol),
        (ConnectionError::RetryTokenTooLong(1400), Exit::Protocol),
        (application(Reason::Interrupted), Exit::Partial),
        (application(Reason::Protocol), Exit::Protocol),
        (ConnectionError::Internal("x"), Exit::Other),
        (
            refusal(towline::TransportErrorCode::CONNECTION_REFUSED),
            Exit::Connect,
        ),
        (
            refusal(towline::TransportErrorCode::INVALID_TOKEN),
            Exit::Connect,
        ),
        (
            refusal(towline::TransportErrorCode::NO_VIABLE_PATH),
            Exit::Protocol,
        ),
    ] {
        let failure = connection_failure(&error);
        assert_eq!(failure.exit, exit, "{error}");
        assert!(
            !failure.message.contains('\x1b'),
            "control characters reach no terminal"
        );
    }
}
