use super::*;

#[test]
fn rows_of_perf_become_bytes_of_seconds() {
    let record = serde_json::json!({
        "start": { "mtu": 1200 },
        "intervals": [
            { "start": 0.0, "end": 1.001, "bytes": 5 },
            { "start": 1.001, "end": 2.0, "bytes": 7 },
            { "start": 2.0, "end": 2.996, "bytes": 1 },
            { "start": 2.996, "end": 3.0, "bytes": 100 },
        ],
    });
    // The last row is no second: it begins where the measurement ends.
    assert_eq!(towline_result(&record, 3), Ok((vec![5, 7, 1], 1228)));
    let nothing = serde_json::json!({ "start": { "mtu": 1200 }, "intervals": [] });
    assert!(towline_result(&nothing, 3).is_err());
}

#[test]
fn a_relays_report_becomes_a_sample_of_the_way_down() {
    let line = r#"{"schema":"towline.relay.interval/1","seconds":2.5,"up":{},"down":{"queue_delay":0.01,"bytes_delivered":5000,"datagrams_in":100,"drops":{"queue":3}}}"#;
    let found = sample(
        &record(line, "towline.relay.interval/1").expect("a record"),
        0.5,
    );
    let found = found.expect("a sample");
    assert_eq!((found.at, found.queue_delay), (2.0, Some(0.01)));
    assert_eq!((found.bytes, found.packets, found.dropped), (5000, 100, 3));
    assert!(record(line, "towline.tun/1").is_none());
}
