//! `--metrics`: a running command's numbers as Prometheus text, over HTTP.
//!
//! One small listener: `GET /metrics` and nothing else, and a body made at most once a second
//! however often it is asked for. Names are `towline_`, what is counted, the field's name in
//! `--json`, and its unit where the name does not say it. Connections are summed up: no label ever
//! names one.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;
use towline::Endpoint;
use towline::stats::{Field, Kind, Total, Totals, Unit, Value, Visit};

use crate::exit::{Exit, Failure};
use crate::plain_http::{self, Content, Serving, Site};
use crate::printer::Printer;

/// For so long a body is served again.
const FRESH: Duration = Duration::from_secs(1);
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether numbers are served, and where.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct MetricsArgs {
    /// Serve metrics for Prometheus at http://ADDR/metrics; 127.0.0.1:PORT keeps them on this machine
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
}

/// An address that is bound, if one was asked for.
pub(crate) struct Bound(Option<TcpListener>);

impl MetricsArgs {
    /// Binds the address, before anything is served.
    pub(crate) async fn bind(&self) -> Result<Bound, Failure> {
        let Some(address) = self.metrics else {
            return Ok(Bound(None));
        };
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|error| {
            Failure::new(Exit::Other, format!("--metrics {address}: {error}"))
                .next("choose another address or port, such as 127.0.0.1:0")
        })?;
        Ok(Bound(Some(listener)))
    }
}

impl Bound {
    /// Says where, and serves what `fill` says until the guard is dropped.
    pub(crate) fn serve(
        self,
        printer: Printer,
        fill: impl Fn(&mut Exposition) + Send + Sync + 'static,
    ) -> Option<Serving> {
        let listener = self.0?;
        let address = listener.local_addr().ok()?;
        printer.line(format_args!("metrics http://{address}/metrics"));
        if !address.ip().is_loopback() {
            printer.note(format_args!(
                "towline: note: whoever reaches {address} can read the metrics"
            ));
        }
        printer.record(&json!({
            "schema": "towline.metrics/1",
            "address": address.to_string(),
            "url": format!("http://{address}/metrics"),
        }));
        let page = Page {
            fill: Box::new(fill),
            made: Mutex::new(None),
        };
        Some(plain_http::serve(listener, page))
    }
}

/// All that an endpoint counts: each shard's engine and socket, and its connections together.
pub(crate) fn endpoint(endpoint: Endpoint) -> impl Fn(&mut Exposition) + Send + Sync + 'static {
    move |text| {
        let shards = endpoint.shard_stats();
        text.of_shards("endpoint", shards.iter().map(|shard| shard.engine));
        text.of_shards("socket", shards.iter().map(|shard| shard.socket));
        text.totals("connection", &endpoint.connection_totals());
        // Where the endpoint speaks HTTP/3.
        if let Some(stats) = endpoint.http3_stats() {
            text.stats("http3", &stats);
        }
        if let Some(stats) = endpoint.webtransport_stats() {
            text.stats("webtransport", &stats);
        }
    }
}

/// What is served, and the latest of it.
struct Page {
    fill: Box<dyn Fn(&mut Exposition) + Send + Sync>,
    made: Mutex<Option<(Instant, Bytes)>>,
}

impl Page {
    async fn text(&self) -> Bytes {
        let mut made = self.made.lock().await;
        match &*made {
            Some((at, text)) if at.elapsed() < FRESH => text.clone(),
            _ => {
                let mut text = Exposition::new();
                (self.fill)(&mut text);
                let text = Bytes::from(text.0);
                *made = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

impl Site for Page {
    async fn get(&self, path: &str) -> Option<Content> {
        match path {
            "/metrics" => Some(Content {
                kind: CONTENT_TYPE,
                body: self.text().await,
            }),
            _ => None,
        }
    }

    fn hint(&self) -> &'static str {
        "metrics are at /metrics\n"
    }
}

/// Metrics in Prometheus's text format.
pub(crate) struct Exposition(String);

impl Exposition {
    fn new() -> Self {
        let mut text = Self(String::new());
        text.head("towline_build_info", "gauge", "The program that is running");
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(text.0, "towline_build_info{{version=\"{version}\"}} 1");
        text
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn head_of(&mut self, what: &str, field: Field) -> String {
        let name = name(what, field);
        let kind = match field.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.head(&name, kind, field.help);
        name
    }

    /// What was not measured has no line.
    fn value(&mut self, name: &str, labels: &str, value: Option<f64>) {
        if let Some(value) = value {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    /// Some statistics.
    pub(crate) fn stats(&mut self, what: &str, stats: &impl Visit) {
        stats.visit(&mut |field, value| {
            let name = self.head_of(what, field);
            self.value(&name, "", value.as_f64());
        });
    }

    /// The same statistics of each shard.
    fn of_shards<S: Visit>(&mut self, what: &str, shards: impl Iterator<Item = S>) {
        let mut fields: Vec<(Field, Vec<Value>)> = Vec::new();
        for shard in shards {
            let mut place = 0;
            shard.visit(&mut |field, value| {
                match fields.get_mut(place) {
                    Some((_, values)) => values.push(value),
                    None => fields.push((field, vec![value])),
                }
                place += 1;
            });
        }
        for (field, values) in fields {
            let name = self.head_of(what, field);
            for (shard, value) in values.into_iter().enumerate() {
                self.value(&name, &format!("{{shard=\"{shard}\"}}"), value.as_f64());
            }
        }
    }

    /// Statistics over many: of gauges the least, the mean and the greatest.
    fn totals(&mut self, what: &str, totals: &Totals) {
        for (field, total) in totals.iter() {
            let name = self.head_of(what, field);
            match total {
                Total::Sum(sum) => self.value(&name, "", Some(sum as f64)),
                Total::Spread(spread) => {
                    for (of, value) in [
                        ("least", spread.least()),
                        ("mean", spread.mean()),
                        ("greatest", spread.greatest()),
                    ] {
                        self.value(&name, &format!("{{of=\"{of}\"}}"), value);
                    }
                }
            }
        }
    }

    /// Every number of a record as `--json` prints it, objects inside with their names in front.
    /// Those whose names end in one of `gauges` go up and down; of these a flag is 1 or 0. Delays are in seconds, which a
    /// metric's name says.
    pub(crate) fn record(&mut self, what: &str, record: &Json, gauges: &[&str]) {
        let Json::Object(members) = record else {
            return;
        };
        for (name, value) in members {
            let path = format!("{what}_{name}");
            match value {
                Json::Object(_) => self.record(&path, value, gauges),
                Json::Bool(is) if gauges.iter().any(|gauge| name.ends_with(gauge)) => {
                    let help = path.replace('_', " ");
                    let name = format!("towline_{path}");
                    self.head(&name, "gauge", &help);
                    self.value(&name, "", Some(f64::from(u8::from(*is))));
                }
                Json::Number(number) => {
                    let is_gauge = gauges.iter().any(|gauge| name.ends_with(gauge));
                    let (kind, end) = match is_gauge {
                        true => ("gauge", ""),
                        false => ("counter", "_total"),
                    };
                    let unit = match name.ends_with("_delay") {
                        true => "_seconds",
                        false => "",
                    };
                    let help = path.replace('_', " ");
                    let name = format!("towline_{path}{unit}{end}");
                    self.head(&name, kind, &help);
                    self.value(&name, "", number.as_f64());
                }
                _ => {}
            }
        }
    }
}

/// A metric's name: the unit is in it, and a counter ends in `_total`.
fn name(what: &str, field: Field) -> String {
    let unit = match field.unit {
        Unit::Bytes if !field.name.contains("bytes") => "_bytes",
        Unit::BytesPerSecond => "_bytes_per_second",
        Unit::Seconds => "_seconds",
        Unit::Bytes | Unit::Count | Unit::Ratio | Unit::Flag => "",
    };
    let end = match field.kind {
        Kind::Counter => "_total",
        Kind::Gauge => "",
    };
    format!("towline_{what}_{}{unit}{end}", field.name)
}

#[cfg(test)]
mod tests;
