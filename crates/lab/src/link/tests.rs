use super::*;

fn record(text: &str) -> Record {
    Record::parse(text.as_bytes()).unwrap()
}

/// Speeds of three boats, in knots that wander.
fn deltas(count: usize) -> Vec<Record> {
    let delta = |at: usize| {
        let (boat, second) = (at % 3, at / 10);
        let knots = 50 + (at * 7 % 13) as u32;
        record(&format!(
            r#"{{"context":"vessels.{boat}","updates":[{{"timestamp":"2014-08-15T{:02}:{:02}:{:02}.000Z","values":[{{"path":"navigation.speedOverGround","value":{:?}}}]}}]}}"#,
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            f64::from(knots) / 19.43844,
        ))
    };
    (0..count).map(delta).collect()
}

fn plan(batch: usize, loss: f64) -> Plan {
    Plan {
        batch,
        loss,
        seed: 7,
    }
}

#[test]
fn every_delta_arrives_as_it_is_whatever_gets_lost() {
    let deltas = deltas(2_000);
    let mut sent = 0;
    let outcome = measure(&[], &deltas, plan(10, 0.2), |now| sent = now).unwrap();
    assert_eq!(sent, 2_000);
    assert!(outcome.again > 20, "a fifth was lost: {outcome:?}");
    let calm = measure(&[], &deltas, plan(10, 0.0), |_| {}).unwrap();
    assert_eq!(calm.again, 0);
    let (calm, lossy) = (calm.warm.unwrap(), outcome.warm.unwrap());
    assert!(
        calm < lossy && lossy < 8.0,
        "{calm} and {lossy} bytes a delta"
    );
}

#[test]
fn what_was_learned_before_counts_as_cold() {
    let deltas = deltas(1_500);
    let untrained = measure(&[], &deltas, plan(20, 0.0), |_| {}).unwrap();
    let trained = measure(&deltas, &deltas, plan(20, 0.0), |_| {}).unwrap();
    assert!(trained.cold > 1.5 * untrained.cold);
    assert!(trained.warm.unwrap() < 1.05 * untrained.warm.unwrap());
}

#[test]
fn a_batch_that_fits_no_datagram_takes_a_stream() {
    let mut letters = 1u32;
    let mut letter = || {
        letters = letters.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (letters >> 24) as u8 % 26)
    };
    let mut text = || (0..3_000).map(|_| letter()).collect::<String>();
    let records: Vec<Record> = (0..4)
        .map(|_| record(&format!(r#"{{"text":"{}"}}"#, text())))
        .collect();
    let outcome = measure(&[], &records, plan(1, 0.05), |_| {}).unwrap();
    assert!(outcome.streams >= 4);
    assert_eq!(outcome.warm, None);
}

#[test]
fn nothing_is_no_measurement() {
    assert!(matches!(
        measure(&[], &[], plan(1, 0.0), |_| {}),
        Err(Failure::Nothing)
    ));
    assert!(matches!(
        measure(&[], &deltas(1), plan(0, 0.0), |_| {}),
        Err(Failure::Nothing)
    ));
}

#[test]
fn each_stage_of_a_batch_is_measured() {
    let texts: Vec<String> = deltas(400).iter().map(Record::to_json).collect();
    // Each look at the clock takes a microsecond.
    let ticks = std::cell::Cell::new(0);
    let clock = || {
        ticks.set(ticks.get() + 1);
        Duration::from_micros(ticks.get())
    };
    let mut sent = 0;
    let stages = stages(&texts, 20, 300, clock, |now| sent = now).unwrap();
    assert_eq!((sent, stages.whole.len()), (300, 300));
    for stage in &stages.each {
        assert!(stage.iter().all(|time| *time == Duration::from_micros(1)));
    }
    assert!(
        stages
            .whole
            .iter()
            .all(|time| *time == Duration::from_micros(6))
    );
    assert!(matches!(
        super::stages(&texts[..19], 20, 1, clock, |_| {}),
        Err(Failure::Nothing)
    ));
}
