use super::*;

const RETRY: Duration = Duration::from_secs(60);

/// How many sessions there are, and after how long it is given up, if each lasts `lasting` and
/// `brings` says of each how many files it completed and how much it found there.
fn given_up(
    lasting: Duration,
    mut brings: impl FnMut(u32) -> (u64, u64),
) -> Option<(u32, Duration)> {
    let mut patience = Patience::new(RETRY);
    let started = Instant::now();
    let mut now = started;
    for session in 0..1000 {
        now += lasting;
        let (files, resumed) = brings(session);
        if patience.after_session(files, resumed, now).is_none() {
            return Some((session, now - started));
        }
    }
    None
}

#[test]
fn a_receiver_that_dies_of_each_sessions_data_is_given_up() {
    let (_, time) = given_up(Duration::from_secs(5), |_| (0, 0)).unwrap();
    assert!((RETRY..2 * RETRY).contains(&time), "{time:?}");
    // It has a part of the file, and never more of it.
    let (_, time) = given_up(Duration::from_secs(5), |session| {
        (0, u64::from(session.min(1)))
    })
    .unwrap();
    assert!((RETRY..2 * RETRY).contains(&time), "{time:?}");
    // Nor does it help to claim less in between.
    let (_, time) = given_up(Duration::from_secs(5), |session| {
        (0, u64::from(session % 2))
    })
    .unwrap();
    assert!((RETRY..2 * RETRY).contains(&time), "{time:?}");
}

#[test]
fn a_transfer_that_gets_on_is_never_given_up() {
    assert_eq!(
        given_up(Duration::from_secs(600), |session| (
            0,
            u64::from(session) << 20
        )),
        None
    );
    assert_eq!(given_up(Duration::from_secs(600), |_| (1, 0)), None);
}

#[test]
fn a_long_session_may_show_what_it_brought_in_the_one_after_it() {
    // The third begins where the second did, and lasts ten minutes; the fourth begins further on.
    let mut patience = Patience::new(RETRY);
    let now = Instant::now();
    assert!(patience.after_session(0, 0, now).is_some());
    assert!(patience.after_session(0, 10, now).is_some());
    let late = now + Duration::from_secs(600);
    assert!(
        patience
            .after_session(0, 10, late)
            .is_some_and(|until| until > late)
    );
    assert!(patience.after_session(0, 500, late).is_some());
    // Once only, if it brought nothing.
    let later = late + Duration::from_secs(600);
    assert!(patience.after_session(0, 500, later).is_some());
    assert!(patience.after_session(0, 500, later).is_none());
}

#[test]
fn no_time_to_try_again_means_none() {
    let mut patience = Patience::new(Duration::ZERO);
    assert!(patience.after_session(9, 9, Instant::now()).is_none());
}
