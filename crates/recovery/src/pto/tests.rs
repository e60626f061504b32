use super::*;
use PacketNumberSpace::{Application, Handshake, Initial};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

/// smoothed_rtt 100 ms, rttvar 50 ms: the PTO without max_ack_delay is 300 ms.
fn rtt() -> RttEstimator {
    let mut rtt = RttEstimator::new(crate::INITIAL_RTT);
    rtt.update(Time::ZERO, ms(100), Duration::ZERO);
    rtt
}

fn timer(side: Side) -> ProbeTimer {
    ProbeTimer::new(side, ms(25))
}

#[test]
fn max_ack_delay_counts_in_the_application_space_only() {
    let timer = timer(Side::Server);
    assert_eq!(timer.period(&rtt(), Initial), ms(300));
    assert_eq!(timer.period(&rtt(), Handshake), ms(300));
    assert_eq!(timer.period(&rtt(), Application), ms(325));
}

#[test]
fn backoff_doubles_the_whole_period_max_ack_delay_included() {
    let mut timer = timer(Side::Server);
    timer.handshake_confirmed = true;
    let sent = [None, None, Some(at(1000))];
    assert_eq!(timer.deadline(&rtt(), sent), Some((at(1325), Application)));
    timer.count = 3;
    assert_eq!(
        timer.deadline(&rtt(), sent),
        Some((at(1000 + 8 * 325), Application))
    );
}

#[test]
fn earliest_space_wins_and_an_unset_one_never_does() {
    let timer = timer(Side::Server);
    let deadline = |sent| timer.deadline(&rtt(), sent);
    assert_eq!(
        deadline([Some(at(50)), Some(at(20)), None]),
        Some((at(320), Handshake))
    );
    assert_eq!(
        deadline([Some(at(10)), Some(at(20)), None]),
        Some((at(310), Initial))
    );
    assert_eq!(
        deadline([Some(at(10)), None, None]),
        Some((at(310), Initial))
    );
    assert_eq!(deadline([None, None, None]), None);
}

#[test]
fn application_space_waits_for_the_confirmed_handshake() {
    let mut timer = timer(Side::Server);
    let sent = [None, None, Some(at(10))];
    assert_eq!(timer.deadline(&rtt(), sent), None);
    timer.handshake_confirmed = true;
    assert_eq!(timer.deadline(&rtt(), sent), Some((at(335), Application)));
}

#[test]
fn client_keeps_probing_until_its_address_is_validated() {
    let mut timer = timer(Side::Client);
    timer.base = Some(at(70));
    assert_eq!(
        timer.deadline(&rtt(), [None; 3]),
        Some((at(370), Initial)),
        "counted from now"
    );
    timer.handshake_keys = true;
    assert_eq!(
        timer.deadline(&rtt(), [None; 3]),
        Some((at(370), Handshake))
    );
    timer.peer_validated = true;
    assert_eq!(timer.deadline(&rtt(), [None; 3]), None);
}

#[test]
fn early_data_in_flight_does_not_disarm_the_anti_deadlock_probe() {
    let mut timer = timer(Side::Client);
    timer.base = Some(at(70));
    let sent = [None, None, Some(at(60))];
    assert_eq!(timer.deadline(&rtt(), sent), Some((at(370), Initial)));
}

#[test]
fn server_at_the_amplification_limit_has_no_pto() {
    let mut timer = timer(Side::Server);
    timer.amplification_blocked = true;
    assert_eq!(
        timer.deadline(&rtt(), [Some(at(10)), Some(at(20)), None]),
        None
    );
}

#[test]
fn progress_resets_the_backoff_except_at_an_unvalidated_client() {
    let mut client = timer(Side::Client);
    client.on_expired(at(10));
    client.on_expired(at(20));
    client.on_progress(at(30));
    assert_eq!((client.count, client.base), (2, Some(at(30))));
    client.peer_validated = true;
    client.on_progress(at(40));
    assert_eq!(client.count, 0);
}

#[test]
fn a_host_that_slept_gets_one_expiry_not_one_per_doubling() {
    let mut timer = timer(Side::Server);
    let sent = [Some(at(0)), None, None];
    timer.on_expired(at(3_600_000));
    assert_eq!(timer.deadline(&rtt(), sent), Some((at(3_600_600), Initial)));
}

#[test]
fn endless_backoff_saturates() {
    let mut timer = timer(Side::Client);
    timer.count = u32::MAX;
    let never = timer.deadline(&rtt(), [Some(at(1)), None, None]);
    assert_eq!(never, Some((Time::MAX, Initial)));
    timer.on_expired(Time::MAX);
    assert_eq!(timer.count, u32::MAX);
}
