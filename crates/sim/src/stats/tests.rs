use super::*;

#[test]
fn buckets_are_in_order_and_hold_their_middle() {
    let mut last = 0;
    for shift in 0..64 {
        for step in 0..64u64 {
            let nanos = (1u64 << shift).saturating_add(step.saturating_mul((1u64 << shift) / 64));
            let delay = Duration::from_nanos(nanos);
            let index = bucket(delay);
            assert!(index >= last, "{nanos}");
            last = index;
            assert_eq!(bucket(middle(index)), index, "{nanos}");
            let error = middle(index).abs_diff(delay);
            assert!(
                error <= Duration::from_nanos(4096).max(delay / 63),
                "{nanos}"
            );
        }
    }
    assert!(bucket(Duration::MAX) < 1504);
}

#[test]
fn quantiles_and_mean_are_those_of_the_samples() {
    let mut histogram = DelayHistogram::default();
    assert_eq!(histogram.quantile(0.95), Duration::ZERO);
    assert_eq!(histogram.mean(), Duration::ZERO);
    // 0.1, 0.2, … 100 ms.
    for i in 1..=1000 {
        histogram.record(Duration::from_micros(100) * i);
    }
    assert_eq!(histogram.mean(), Duration::from_micros(50_050));
    assert_eq!(histogram.max(), Duration::from_millis(100));
    for (q, micros) in [(0.0, 100), (0.5, 50_000), (0.95, 95_000), (1.0, 100_000)] {
        let got = histogram.quantile(q).as_secs_f64() * 1e6;
        let expected = f64::from(micros);
        let tolerance = (expected * 0.016).max(4.1);
        assert!((got - expected).abs() <= tolerance, "{q}: {got}");
    }
}

#[test]
fn merged_histograms_are_one() {
    let (mut a, mut b, mut both) = Default::default();
    for i in 0..500u32 {
        let delay = Duration::from_micros(7) * i * i;
        let half: &mut DelayHistogram = if i % 3 == 0 { &mut a } else { &mut b };
        half.record(delay);
        DelayHistogram::record(&mut both, delay);
    }
    a.merge(&b);
    assert_eq!(a, both);
}
