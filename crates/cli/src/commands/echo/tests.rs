use super::*;

#[test]
fn minimum_mean_maximum_and_deviation_are_those_of_ping() {
    let mut tally = Tally {
        sent: 4,
        ..Tally::default()
    };
    for ms in [10, 20, 30] {
        tally.add(Duration::from_millis(ms));
    }
    assert_eq!(tally.min, Some(Duration::from_millis(10)));
    assert_eq!(tally.max, Duration::from_millis(30));
    assert_eq!(millis(tally.mean()), 20.0);
    assert_eq!(millis(tally.deviation()), 8.165);
    assert_eq!(tally.loss_percent(), 25.0);
}

#[test]
fn an_empty_tally_divides_by_nothing() {
    let tally = Tally::default();
    assert_eq!(tally.mean(), Duration::ZERO);
    assert_eq!(tally.loss_percent(), 0.0);
}
