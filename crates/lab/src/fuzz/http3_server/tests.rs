use towline_http3::ErrorCode;
use towline_http3::webtransport::Dialect;

use super::books::Life;
use super::script::{Step, What};
use super::*;

fn named(name: &str) -> Vec<u8> {
    let found = exchange::all().into_iter().find(|(of, _)| of == name);
    found.expect("an exchange of this name").1
}

#[test]
fn a_recorded_exchange_opens_its_sessions_again() {
    for dialect in Dialect::ALL {
        let play_of = |scene| play(&named(&format!("{}-{scene}", dialect.name())));
        for scene in [
            "echo",
            "server-closes",
            "refused",
            "codes",
            "limits",
            "early",
            "sessions",
        ] {
            let run = play_of(scene);
            let (sessions, closed) = (&run.books.sessions, run.books.closed);
            assert!(
                !sessions.is_empty() && closed.is_none(),
                "{scene}: {closed:?}"
            );
        }
        let run = play_of("codes");
        let (sessions, connection) = (&run.books.sessions, &run.host.connection);
        assert!(sessions.values().all(|life| *life == Life::Open));
        for session in sessions.keys() {
            assert_eq!(connection.session_dialect(*session), Some(dialect));
        }
        let run = play_of("sessions");
        let sessions = &run.books.sessions;
        assert_eq!(sessions.len(), 2);
    }
}

#[test]
fn a_breach_of_the_client_ends_its_session_or_the_connection() {
    let mut input = named("draft-16-codes");
    let before = play(&input);
    let sessions = &before.books.sessions;
    let session = *sessions.keys().next().expect("a session");
    let at = before.streams.iter().position(|id| *id == session);
    // A capsule that no session has.
    let step = Step::with_bytes(What::Capsule, at.expect("its stream") as u8, &[9, 0]);
    step.emit(&mut input);
    let run = play(&input);
    let (sessions, closed) = (&run.books.sessions, run.books.closed);
    assert_eq!((sessions[&session], closed), (Life::Over, None));
    assert_eq!(run.host.connection.sessions(), 0);

    Step::of(What::Open, 1).emit(&mut input);
    let control = run.streams.len() as u8;
    Step::with_bytes(What::Bytes, control, &[0x00]).emit(&mut input);
    let run = play(&input);
    let error = run.books.closed.expect("a second control stream");
    assert_eq!(error.code, ErrorCode::H3_STREAM_CREATION_ERROR);
}

#[test]
fn equal_inputs_have_equal_signatures() {
    for (_, input) in seeds() {
        assert_eq!(run(&input), run(&input));
        assert_ne!(run(&input), run(&input[..2]));
    }
}
