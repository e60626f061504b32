use towline::stats::{EndpointStats, SocketStats, Stats};

use super::*;

/// The metrics of a page: names with labels, and values.
fn samples(text: &str) -> Vec<(&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| line.rsplit_once(' ').expect("a name and a value"));
    samples
        .map(|(name, value)| (name, value.parse().expect("a number")))
        .collect()
}

#[test]
fn every_field_of_every_statistics_is_a_metric_once() {
    let mut text = Exposition::new();
    text.of_shards("endpoint", [EndpointStats::default(); 2].into_iter());
    text.of_shards("socket", [SocketStats::default(); 2].into_iter());
    let mut totals = Totals::default();
    totals.add(&Stats::default());
    text.totals("connection", &totals);
    let mut fields = 0;
    let mut count = |field: Field, _: Value| {
        fields += 1;
        assert!(text.0.contains(field.help), "{field:?}");
    };
    Stats::default().visit(&mut count);
    EndpointStats::default().visit(&mut count);
    SocketStats::default().visit(&mut count);
    let heads: Vec<&str> = text
        .0
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .collect();
    assert_eq!(heads.len(), 1 + fields);
    let mut names: Vec<&str> = samples(&text.0).iter().map(|sample| sample.0).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "no sample twice");
}

#[test]
fn names_say_their_units_and_counters_that_they_are_ones() {
    let mut text = Exposition::new();
    let mut totals = Totals::default();
    totals.add(&Stats::default());
    text.totals("connection", &totals);
    for line in [
        "# TYPE towline_connection_bytes_sent_total counter",
        "# TYPE towline_connection_smoothed_rtt_seconds gauge",
        "# TYPE towline_connection_datagrams_from_elsewhere_total counter",
        "# TYPE towline_connection_cwnd_bytes gauge",
        "# TYPE towline_connection_pacing_rate_bytes_per_second gauge",
        "# TYPE towline_connection_loss_ratio gauge",
        "towline_connection_packets_sent_total 0",
        "towline_connection_mtu_bytes{of=\"greatest\"} 0",
    ] {
        assert!(
            text.0.lines().any(|have| have == line),
            "{line}\n{}",
            text.0
        );
    }
    assert!(
        !text.0.contains("towline_connection_min_rtt_seconds{"),
        "not measured is not zero"
    );
}

#[test]
fn the_numbers_of_a_record_become_metrics_and_words_do_not() {
    let mut text = Exposition::new();
    let record = json!({
        "schema": "x",
        "clients": 3,
        "up": { "bytes_in": 10, "drops": { "loss": 2 }, "queue_bytes": 7, "queue_delay": null },
        "down": { "queue_delay": 0.25 },
    });
    text.record("relay", &record, &["clients", "queue_bytes", "queue_delay"]);
    let samples = samples(&text.0);
    for sample in [
        ("towline_relay_clients", 3.0),
        ("towline_relay_up_bytes_in_total", 10.0),
        ("towline_relay_up_drops_loss_total", 2.0),
        ("towline_relay_up_queue_bytes", 7.0),
        ("towline_relay_down_queue_delay_seconds", 0.25),
    ] {
        assert!(samples.contains(&sample), "{sample:?}\n{}", text.0);
    }
    assert_eq!(samples.len(), 6, "these and the program");
}

#[tokio::test]
async fn only_the_metrics_are_served() {
    let page = Page {
        fill: Box::new(|text| text.stats("endpoint", &EndpointStats::default())),
        made: Mutex::new(None),
    };
    let content = page.get("/metrics").await.unwrap();
    assert_eq!(content.kind, CONTENT_TYPE);
    let body = String::from_utf8(content.body.to_vec()).unwrap();
    assert!(
        body.contains("\ntowline_endpoint_connections 0\n"),
        "{body}"
    );
    assert!(page.get("/").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_is_made_once_a_second_however_often_it_is_asked_for() {
    let made = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = std::sync::Arc::clone(&made);
    let page = Page {
        fill: Box::new(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }),
        made: Mutex::new(None),
    };
    for _ in 0..1000 {
        page.text().await;
    }
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1);
    tokio::time::advance(FRESH).await;
    page.text().await;
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 2);
}
