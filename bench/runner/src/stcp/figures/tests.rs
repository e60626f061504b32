use super::*;
use crate::plan;

fn figures(rate: impl Fn(Stack) -> f64, errors: f64) -> Figures {
    let mut figures = Figures {
        idle: vec![(Stack::Rustls, 50.0), (Stack::Towline, 12.0)],
        ..Figures::default()
    };
    for cell in plan::cells() {
        for slice in 0..5 {
            for stack in &cell.stacks {
                let sample = Sample {
                    // The slices differ; their median is the rate.
                    requests_per_s: rate(*stack) * (0.8 + 0.1 * f64::from(slice)),
                    errors,
                    ..Sample::default()
                };
                figures.add(&cell, *stack, String::new(), sample);
            }
        }
    }
    figures
}

fn usual(stack: Stack) -> f64 {
    match stack {
        Stack::Plain => 200.0,
        Stack::Towline => 110.0,
        Stack::Rustls => 100.0,
        Stack::Proxy => 50.0,
        Stack::Stunnel => 20.0,
        Stack::Openssl => 90.0,
        Stack::Relay => 40.0,
        Stack::UserRelay => 30.0,
    }
}

#[test]
fn ratios_are_of_medians_and_judged_only_on_loopback() {
    let figures = figures(usual, 0.0);
    let verdict = Verdict::of(&figures, true);
    assert_eq!(verdict.missed(), 0);
    assert_eq!(verdict.line(), "Every mark is reached; 9 of 9 goals.");
    let value = |measure: &str, what: &str| {
        let mut rows = verdict.judgements.iter();
        let row = rows.find(|row| row.measure == measure && row.what == what);
        row.and_then(|row| row.value).unwrap_or(f64::NAN)
    };
    assert!((value("echo_256", "library ÷ rustls") - 1.1).abs() < 1e-9);
    assert!((value("echo_65536", "library ÷ plain TCP") - 0.55).abs() < 1e-9);
    assert!((value("echo_4096", "proxy ÷ stunnel") - 2.5).abs() < 1e-9);
    assert!((value("echo_256_veth", "relay tier ÷ plain TCP") - 0.2).abs() < 1e-9);
    assert!((value("echo_16384_veth", "user-relay tier ÷ plain TCP") - 0.15).abs() < 1e-9);
    for (route, rows) in [("tun", 2), ("veth", 6)] {
        let judgements = verdict.judgements.iter();
        let on_route = judgements.filter(|row| row.measure.ends_with(route));
        assert_eq!(on_route.clone().count(), rows, "{route}");
        assert!(on_route.clone().all(|row| row.first.is_none()), "{route}");
    }
}

#[test]
fn a_slow_library_misses_a_mark_in_every_cell_and_errors_miss_one() {
    let slow = |stack| {
        if stack == Stack::Towline {
            94.0
        } else {
            usual(stack)
        }
    };
    assert_eq!(Verdict::of(&figures(slow, 0.0), true).missed(), 4);
    let verdict = Verdict::of(&figures(usual, 1.0), true);
    assert_eq!(verdict.missed(), 1);
    assert!(verdict.invalid.is_some(), "the peers had errors too");
}

#[test]
fn a_missing_peer_is_a_missed_mark_and_a_part_is_not_judged() {
    let mut figures = figures(usual, 0.0);
    figures
        .entries
        .retain(|entry| entry.stack != Stack::Stunnel);
    assert_eq!(Verdict::of(&figures, true).missed(), 4);
    figures.idle = vec![(Stack::Towline, 65.0)];
    assert_eq!(Verdict::of(&figures, true).missed(), 5);
    let part = Verdict::of(&figures, false);
    assert!(part.line().contains("not a whole run"), "{}", part.line());
}
