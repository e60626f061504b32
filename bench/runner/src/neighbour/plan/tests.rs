use super::*;

#[test]
fn cases_are_read_as_they_are_printed() {
    assert_eq!(cases().len(), 10);
    for case in cases() {
        assert_eq!(case.to_string().parse(), Ok(case));
    }
    for (text, problem) in [
        ("cubic", "no flow"),
        ("linux-cubic+", "no flow"),
        ("towline-", "names no congestion controller"),
        ("linux-a+linux-b+linux-c+linux-d+linux-e", "more than 4"),
    ] {
        let error = text.parse::<Case>().expect_err(text);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn the_queue_is_one_bandwidth_delay_product() {
    let setting = Setting::default();
    assert_eq!(setting.queue(), 100_000);
    assert!((setting.full_queue() - 0.04).abs() < 1e-9);
    assert_eq!(setting.spec(), "rate=20000000bit,delay=20ms,queue=100000b");
    assert_eq!(setting.omitted(), 10);
}
