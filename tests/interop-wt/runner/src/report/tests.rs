use super::*;

fn cell(client: Stack, server: Stack, first: Outcome, others: Outcome) -> Cell {
    let mut outcomes = CASES.map(|_| others.clone());
    outcomes[0] = first;
    Cell {
        client,
        server,
        outcomes,
    }
}

fn failed(why: &str) -> Outcome {
    Outcome::Failed(why.to_owned())
}

fn passed() -> Outcome {
    Outcome::Passed(String::new())
}

/// Pairs with Towline that must have no session.
const REFUSALS: [(Stack, Stack); 4] = [
    (Stack::Towline, Stack::Pywebtransport9),
    (Stack::Pywebtransport9, Stack::Towline),
    (Stack::TowlinePython, Stack::Pywebtransport9),
    (Stack::Pywebtransport9, Stack::TowlinePython),
];

fn all_of(cell: &Cell) -> Vec<Verdict> {
    verdicts(cell).map(|(_, _, verdict)| verdict).collect()
}

#[test]
fn two_peers_without_a_session_refuse_each_other() {
    let no_session = cell(
        Stack::WebtransportGo,
        Stack::Aioquic,
        failed("no RESET_STREAM_AT"),
        Outcome::NoSession,
    );
    assert_eq!(all_of(&no_session), [Verdict::Refused; CASES.len()]);
    assert!(all_good(&[], &[no_session]));
}

#[test]
fn towline_without_a_session_has_failed() {
    for (client, server) in [
        (Stack::Towline, Stack::Aioquic),
        (Stack::Aioquic, Stack::Towline),
        (Stack::Towline, Stack::Towline),
        (Stack::TowlinePython, Stack::Wtransport),
        (Stack::Wtransport, Stack::TowlinePython),
    ] {
        let no_session = cell(client, server, failed("no answer"), Outcome::NoSession);
        assert_eq!(all_of(&no_session), [Verdict::Failed; CASES.len()]);
        assert!(!all_good(&[], &[no_session]));
    }
}

#[test]
fn a_known_refusal_counts_only_with_its_words() {
    for ((client, server), flaw) in REFUSALS.into_iter().zip(FLAWS.into_iter().cycle()) {
        let with = |why: &str| cell(client, server, failed(why), Outcome::NoSession);
        let refused = with(&format!("they said: {flaw}, as they must"));
        assert_eq!(all_of(&refused), [Verdict::Refused; CASES.len()]);
        assert_eq!(all_of(&with("a timeout")), [Verdict::Failed; CASES.len()]);
    }
}

#[test]
fn a_session_where_a_refusal_is_known_is_a_failure() {
    let (client, server) = REFUSALS[0];
    let session = cell(client, server, passed(), passed());
    assert_eq!(all_of(&session), [Verdict::Failed; CASES.len()]);
}

#[test]
fn a_case_that_fails_between_peers_that_have_a_session_is_not_ours() {
    let flawed = cell(
        Stack::Pywebtransport9,
        Stack::Pywebtransport9,
        passed(),
        failed("receive side closed"),
    );
    assert_eq!(all_of(&flawed)[1], Verdict::PeersFail);
    assert_eq!(count(&[flawed]), [1, 0, 0, 0, CASES.len() - 1]);
}

#[test]
fn what_a_stack_cannot_do_is_skipped_and_counted_as_such() {
    let why = Outcome::Skipped("wtransport as client: no such call".to_owned());
    let lacking = cell(Stack::Wtransport, Stack::Towline, passed(), why);
    assert_eq!(count(&[lacking]), [1, 0, CASES.len() - 1, 0, 0]);
}
