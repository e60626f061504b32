use super::*;

#[test]
fn our_own_reason_is_shown_without_the_wrapping_of_the_library() {
    let wrapped = "invalid peer certificate: Other(OtherError(the pin differs))";
    assert_eq!(plain(wrapped), "the pin differs");
    assert_eq!(plain("anything else"), "anything else");
}

#[test]
fn a_url_without_a_pin_is_told_apart_from_a_wrong_one() {
    let address = "192.0.2.1:4433".parse().unwrap();
    let error = |what: &str| {
        ConnectError::Failed(ConnectionError::Tls {
            code: towline::TransportErrorCode::crypto(42),
            what: what.into(),
        })
    };
    let self_signed = error(
        "invalid peer certificate: UnsupportedSignatureAlgorithmForPublicKeyContext { signature_algorithm_id: [6, 8] }",
    );
    let failure = connect_failure(&self_signed, address, Proof::SystemRoots);
    assert_eq!(failure.exit, Exit::Tls);
    let text = failure.to_string();
    assert!(text.contains("this URL has no pin") && text.contains("paste the whole line"));
    assert!(!text.contains("Context"), "{text}");
    let text = connect_failure(&self_signed, address, Proof::Pin).to_string();
    assert!(
        !text.contains("no pin") && !text.contains("Context"),
        "{text}"
    );
    let expired = error(
        "invalid peer certificate: ExpiredContext { time: UnixTime(5), not_after: UnixTime(4) }",
    );
    let spelt = error("invalid peer certificate: certificate expired: verification time 5");
    for (expired, proof) in [
        (&expired, Proof::SystemRoots),
        (&expired, Proof::GivenRoots),
        (&spelt, Proof::Pin),
    ] {
        let text = connect_failure(expired, address, proof).to_string();
        assert!(text.contains("has ended"), "{text}");
    }
}

#[test]
fn who_gave_an_authority_is_not_told_to_compare_pins() {
    let address = "192.0.2.1:4433".parse().unwrap();
    let error = ConnectError::Failed(ConnectionError::Tls {
        code: towline::TransportErrorCode::crypto(42),
        what: "invalid peer certificate: UnknownIssuer".into(),
    });
    let text = connect_failure(&error, address, Proof::GivenRoots).to_string();
    assert!(text.contains("--cacert") && !text.contains("pin"), "{text}");
    let text = connect_failure(&error, address, Proof::Pin).to_string();
    assert!(text.contains("compare the pin"), "{text}");
}

#[test]
fn a_pinned_certificate_that_has_ended_is_told_with_its_day_and_what_to_do() {
    let what = "invalid peer certificate: certificate expired: verification time 1779300000 (UNIX), but certificate is not valid after 1779213600 (86400 seconds ago)";
    let error = ConnectionError::Tls {
        code: towline::TransportErrorCode::crypto(45),
        what: what.into(),
    };
    let text = connection_failure(&error).to_string();
    for words in [
        "has ended",
        "(on 2026-05-19 18:00 UTC)",
        "a pin of the certificate ended with it",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains("compare the pin"), "{text}");
}

#[test]
fn why_there_is_no_session_is_told_with_what_to_do() {
    use http::StatusCode;
    use webtransport::{Error, NotAsked};
    let refused = Error::Refused;
    for (error, exit, words) in [
        (refused(StatusCode::FORBIDDEN), Exit::Other, "origin"),
        (refused(StatusCode::NOT_FOUND), Exit::Other, "the path"),
        (refused(StatusCode::BAD_REQUEST), Exit::Other, "drafts"),
        (
            NotAsked::Unsupported("no such").into(),
            Exit::Protocol,
            "draft-02",
        ),
    ] {
        let failure = session_failure(&error);
        let text = failure.to_string();
        assert_eq!(failure.exit, exit);
        assert!(
            text.contains(words) && text.contains(&error.to_string()),
            "{text}"
        );
    }
}

#[test]
fn alerts_are_told_in_words() {
    let text = |alert: u8| {
        let close = Close::Transport {
            code: towline::TransportErrorCode::crypto(alert),
            frame: None,
            reason: String::new(),
        };
        let failure = connection_failure(&ConnectionError::ClosedByPeer(close));
        assert_eq!(failure.exit, Exit::Tls);
        failure.to_string()
    };
    assert!(text(120).contains("ALPN `towline/1`"));
    assert!(text(116).contains("no key to show"));
    for alert in [42, 46, 48] {
        assert!(text(alert).contains("does not know our key"));
    }
    for alert in [42, 46, 48, 116] {
        assert!(text(alert).contains("towline cert pin"));
    }
    // A wrong clock at either side looks the same as a certificate that has ended.
    assert!(text(45).contains("clocks"), "{}", text(45));
    assert!(!text(44).contains("clocks") && text(44).contains("revoked"));
    // Not every server goes by pins, and not every certificate of ours is the one under our own key.
    for alert in [40, 42, 46, 48, 116] {
        for words in ["--client-ca", "towline cert pin FILE"] {
            assert!(text(alert).contains(words), "{}", text(alert));
        }
    }
    assert!(text(80).contains("alert 80"));
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
