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
