use super::*;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_run_spans_from_its_first_loss_to_its_last() {
    let mut run = LossRun::default();
    assert_eq!(run.on_lost(4, at(10)), (at(10), Duration::ZERO));
    assert_eq!(run.on_lost(7, at(90)), (at(10), ms(80)));
    assert_eq!(run.on_lost(8, at(110)), (at(10), ms(100)));
}

#[test]
fn an_acknowledged_packet_starts_a_new_run() {
    let mut run = LossRun::default();
    run.on_lost(4, at(10));
    run.cut();
    assert_eq!(run.on_lost(6, at(90)), (at(90), Duration::ZERO));
}

#[test]
fn a_late_acknowledgement_within_the_run_ends_it() {
    let mut run = LossRun::default();
    run.on_lost(4, at(10));
    run.on_lost(9, at(90));
    run.on_late_ack(3);
    run.on_late_ack(10);
    assert_eq!(run.on_lost(11, at(100)).1, ms(90));
    run.on_late_ack(6);
    assert_eq!(run.on_lost(12, at(120)).1, Duration::ZERO);
}
