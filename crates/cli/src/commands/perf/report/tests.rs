use super::*;

#[test]
fn conditions_are_read_or_explained() {
    assert_eq!("rate<100Mbit".parse(), Ok(Threshold::RateBelow(12_500_000)));
    assert_eq!(
        "rtt>20ms".parse(),
        Ok(Threshold::RttAbove(Duration::from_millis(20)))
    );
    assert_eq!("loss>1%".parse(), Ok(Threshold::LossAbove(0.01)));
    for text in ["", "rate>1", "loss>1", "loss>101%", "p99<1"] {
        assert!(text.parse::<Threshold>().is_err(), "{text}");
    }
}

#[test]
fn advice_that_came_up_on_the_way_is_told_at_the_end_and_only_then() {
    let old = "a small buffer".to_owned();
    let new = "GSO was refused".to_owned();
    let start = HostRecord {
        advice: vec![old.clone()],
        ..HostRecord::default()
    };
    let told: Vec<_> = news(("there", &start), &[new, old]).collect();
    assert_eq!(told, ["advice there: GSO was refused"]);
}
