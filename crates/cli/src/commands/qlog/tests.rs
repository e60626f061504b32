use super::read::{MAX_RECORD, Metrics, What};
use super::*;

const HEADER: &str = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential","serialization_format":"application/qlog+json-seq","trace":{"vantage_point":{"type":"client"},"common_fields":{"group_id":"83a4"},"event_schemas":[]}}"#;

fn sequence(records: &[&str]) -> Vec<u8> {
    let records = records.iter().map(|record| format!("\u{1e}{record}\n"));
    records.collect::<String>().into_bytes()
}

fn summary(records: &[&str]) -> Summary {
    summarise(Log::begin(&sequence(records)[..]).unwrap()).unwrap()
}

fn why_not(bytes: &[u8]) -> String {
    let problem = Log::begin(bytes).and_then(summarise).unwrap_err();
    failure(Path::new("x.sqlog"), problem).to_string()
}

#[test]
fn events_are_counted_and_what_is_cut_off_is_passed_over() {
    let summary = summary(&[
        HEADER,
        r#"{"time":5.0,"name":"quic:packet_sent","data":{"header":{"packet_type":"1RTT","packet_number":0},"raw":{"length":1200},"frames":[{"frame_type":"ping"}]}}"#,
        r#"{"time":6.0,"name":"quic:datagrams_sent","data":{"raw":[{"length":1}],"new":1}}"#,
        r#"{"time":25.0,"name":"quic:packet_received","data":{"header":{"packet_type":"1RTT"},"raw":{"length":40}}}"#,
        r#"{"time":25.0,"name":"quic:packet_lost","data":{"header":{"packet_number":0}}}"#,
        r#"{"time":25.5,"name":"quic:recovery_metrics_updated","data":{"min_rtt":20.5,"smoothed_rtt":21,"latest_rtt":22,"congestion_window":12000,"bytes_in_flight":1200}}"#,
        r#"{"time":26.0,"name":"towline:spurious_loss","data":{"packets":1}}"#,
        r#"{"time":1005.0,"name":"quic:connection_closed","data":{"reason":"done\u001b[2J"}}"#,
        r#"{"time":1006.0,"name":"quic:pack"#,
    ]);
    assert_eq!(
        (summary.role.as_str(), summary.id.as_str()),
        ("client", "83a4")
    );
    assert_eq!((summary.events, summary.unreadable), (7, 1));
    assert_eq!((summary.sent.packets, summary.sent.bytes), (1, 1200));
    assert_eq!((summary.received.packets, summary.received.bytes), (1, 40));
    assert_eq!((summary.lost, summary.spurious), (1, 1));
    assert_eq!(summary.min_rtt, Some(20.5));
    assert_eq!(summary.max_window, Some(12_000.0));
    assert!((summary.seconds() - 1.0).abs() < 1e-9);
    let closed = summary.closed.clone().unwrap();
    assert!(
        closed.starts_with("done") && !closed.contains('\u{1b}'),
        "{closed}"
    );
    let text = chart::svg(&plot::chart(&summary)).unwrap();
    for wanted in [
        "rate, Mbit/s",
        "congestion window and bytes in flight, kB",
        "round trip, ms",
        "packets lost in each",
        "client of 83a4",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_log_of_any_length_has_a_timeline_of_bounded_size() {
    let mut summary = Summary::new("client".into(), "1".into());
    for millis in 0..100_000_u32 {
        for what in [
            What::Sent(1000),
            What::Metrics(Metrics {
                window: Some(f64::from(millis)),
                ..Metrics::default()
            }),
        ] {
            summary.add(&read::Event {
                seconds: f64::from(millis) / 1e3,
                what,
            });
        }
    }
    let (width, bins) = summary.bins();
    assert!((1000..=2000).contains(&bins.len()), "{}", bins.len());
    assert!((width - 0.064).abs() < 1e-9, "{width}");
    assert_eq!(bins.iter().map(|bin| bin.sent).sum::<u64>(), 100_000_000);
    assert_eq!(bins[0].window, Some(63.0), "the last value of an interval");
    // A time that no log has.
    summary.add(&read::Event {
        seconds: 1e300,
        what: What::Lost,
    });
    assert!(summary.bins().1.len() <= 2000);
    assert!(chart::svg(&plot::chart(&summary)).is_ok());
}

#[test]
fn numbers_that_no_connection_has_are_drawn_or_left_out() {
    let most = u64::MAX;
    let sent =
        format!(r#"{{"time":1,"name":"quic:packet_sent","data":{{"raw":{{"length":{most}}}}}}}"#);
    let spurious =
        format!(r#"{{"time":1,"name":"towline:spurious_loss","data":{{"packets":{most}}}}}"#);
    let summary = summary(&[
        HEADER,
        &sent,
        &sent,
        &spurious,
        &spurious,
        r#"{"time":2,"name":"quic:recovery_metrics_updated","data":{"latest_rtt":5e-324}}"#,
        r#"{"time":3,"name":"quic:recovery_metrics_updated","data":{"congestion_window":-1e300}}"#,
        r#"{"time":4,"name":"quic:recovery_metrics_updated","data":{"bytes_in_flight":1e300}}"#,
    ]);
    assert_eq!((summary.sent.bytes, summary.spurious), (most, most));
    assert_eq!(summary.max_window, None, "no window is negative");
    let plot = chart::svg(&plot::chart(&summary)).unwrap();
    assert!(plot.len() < 100_000, "{}", plot.len());
}

#[test]
fn members_of_another_form_are_passed_over_and_their_events_count() {
    let text = "x".repeat(1000);
    let long =
        format!(r#"{{"time":4,"name":"quic:connection_closed","data":{{"reason":"{text}"}}}}"#);
    let summary = summary(&[
        HEADER,
        r#"{"time":1,"name":"quic:packet_sent","data":{"raw":[{"length":7},{"length":8}]}}"#,
        r#"{"time":1,"name":"quic:packet_sent","data":{"raw":{"data":{"length":7},"length":40,"x":[1]}}}"#,
        r#"{"time":1,"name":"quic:packet_sent","data":{"raw":{"length":"40"}}}"#,
        r#"{"time":2,"name":"quic:recovery_metrics_updated","data":{"congestion_window":{"a":[null]},"min_rtt":true,"latest_rtt":-1}}"#,
        r#"{"time":3,"name":"towline:spurious_loss","data":{"packets":null}}"#,
        &long,
    ]);
    assert_eq!((summary.events, summary.unreadable), (6, 0));
    assert_eq!((summary.sent.packets, summary.sent.bytes), (3, 40));
    assert_eq!((summary.max_window, summary.min_rtt), (None, None));
    assert_eq!((summary.max_rtt, summary.spurious), (None, 1));
    assert_eq!(summary.closed.clone().unwrap().len(), 200);
}

#[test]
fn times_that_add_up_to_no_number_are_passed_over() {
    let header = r#"{"qlog_version":"0.3","trace":{"common_fields":{"time_format":"delta"}}}"#;
    let late = r#"{"time":1.5e308,"name":"quic:packet_lost","data":{}}"#;
    let summary = summary(&[header, late, late, late]);
    assert_eq!((summary.events, summary.unreadable), (1, 2));
    assert!(chart::svg(&plot::chart(&summary)).is_ok());
}

#[test]
fn what_is_no_qlog_is_said_to_be_none() {
    assert!(why_not(b"").contains("is not a qlog: it is empty"));
    assert!(why_not(b"\x7fELF").contains("does not begin with a record separator"));
    assert!(why_not(b"{\"qlog_version\":\"0.3\"}").contains("one JSON text instead of a sequence"));
    assert!(why_not(b"\x1e{}\n").contains("names no file schema"));
    assert!(why_not(b"\x1e[1]\n").contains("no qlog header"));
    assert!(why_not(b"\x1e").contains("no header"));
}

#[test]
fn a_record_without_end_is_refused() {
    let mut bytes = sequence(&[HEADER]);
    bytes.push(0x1e);
    bytes.resize(bytes.len() + MAX_RECORD + 1, b' ');
    assert!(why_not(&bytes).contains("a record is longer than 16.0 MiB"));
    // One byte less is no more than it may be, and another may follow it.
    bytes.pop();
    bytes.push(0x1e);
    let summary = summarise(Log::begin(&bytes[..]).unwrap()).unwrap();
    assert_eq!(summary.unreadable, 1);
}

#[test]
fn older_names_and_relative_times_are_understood() {
    let header = r#"{"qlog_version":"0.3","trace":{"vantage_point":{"type":"server"},"common_fields":{"ODCID":"aa","time_format":"delta"}}}"#;
    let summary = summary(&[
        header,
        r#"{"time":0,"name":"transport:packet_sent","data":{"raw":{"length":100}}}"#,
        r#"{"time":10,"name":"recovery:metrics_updated","data":{"congestion_window":1}}"#,
        r#"{"time":10,"name":"recovery:packet_lost","data":{}}"#,
    ]);
    assert_eq!((summary.id.as_str(), summary.lost), ("aa", 1));
    assert!((summary.seconds() - 0.02).abs() < 1e-9);
}
