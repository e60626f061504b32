use super::*;
use crate::trial::FlowResult;

/// Twelve seconds of which two do not count.
pub(crate) fn trial() -> (Trial, Setting) {
    let flow = |name: &str, early: f64, late: f64, packet_bytes| FlowResult {
        flow: name.parse().expect("a flow"),
        goodput: [vec![early; 2], vec![late; 10]].concat(),
        packet_bytes,
    };
    let link = (0_u32..120).map(|tenth| LinkSample {
        at: f64::from(tenth) / 10.0,
        // An idle tenth says nothing of delay.
        queue_delay: (tenth != 50).then_some(if tenth < 20 { 9.0 } else { 0.02 }),
        // Nothing, then 18 Mbit/s.
        bytes: u64::from(tenth.saturating_sub(20)) * 225_000,
        packets: u64::from(tenth) * 100,
        dropped: u64::from(tenth),
    });
    let trial = Trial {
        flows: vec![
            flow("towline-cubic", 20e6, 6e6, 1228),
            flow("linux-cubic", 0.0, 12e6, 1500),
        ],
        link: link.collect(),
    };
    let setting = Setting {
        seconds: 12,
        ..Setting::default()
    };
    (trial, setting)
}

#[test]
fn the_start_does_not_count() {
    let (trial, setting) = trial();
    let summary = Summary::of(&trial, &setting);
    assert_eq!(summary.goodput, [6e6, 12e6]);
    assert!((summary.share(0) - 1.0 / 3.0).abs() < 1e-9);
    assert!((summary.queue_delay - 0.02).abs() < 1e-9);
    assert!((summary.queue_delay_p95 - 0.02).abs() < 1e-9);
    assert!((summary.loss - 0.01).abs() < 1e-9);
    assert!((summary.utilisation - 0.9).abs() < 1e-9);
}

#[test]
fn several_rounds_have_a_median_and_a_range() {
    let of = |values: &[f64]| spread(values.iter().copied());
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[3.0]), Some((3.0, None)));
    assert_eq!(of(&[3.0, 1.0]), Some((2.0, Some((1.0, 3.0)))));
    assert_eq!(of(&[3.0, 1.0, 9.0]), Some((3.0, Some((1.0, 9.0)))));
}
