//! Statistics as records: in `--json` results, and from a measurement's server.
//!
//! Fields and names are those of `towline::stats`; nothing here lists them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use towline::stats::{Stats, Value, Visit};

/// Every field of some statistics by its name; times in seconds, sizes in bytes, `null` where
/// nothing was measured.
pub(crate) fn record(stats: &impl Visit) -> Map<String, Json> {
    let mut record = Map::new();
    stats.visit(&mut |field, value| {
        let value = match value {
            Value::Whole(whole) => whole.into(),
            Value::Real(real) => real.into(),
            Value::Flag(flag) => flag.into(),
            Value::Absent => Json::Null,
        };
        record.insert(field.name.to_owned(), value);
    });
    record
}

/// A connection's statistics, ours or those a measurement's server sent. A server may know fewer
/// fields than we do; what we do not know is left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Map<String, Json>", into = "Map<String, Json>")]
pub(crate) struct StatsRecord(Map<String, Json>);

impl From<&Stats> for StatsRecord {
    fn from(stats: &Stats) -> Self {
        Self(record(stats))
    }
}

impl From<Map<String, Json>> for StatsRecord {
    fn from(mut told: Map<String, Json>) -> Self {
        let mut known = Map::new();
        Stats::default().visit(&mut |field, _| {
            let value = told.remove(field.name).unwrap_or_default();
            let fits = value.is_number() || value.is_boolean();
            known.insert(field.name.to_owned(), if fits { value } else { Json::Null });
        });
        Self(known)
    }
}

impl From<StatsRecord> for Map<String, Json> {
    fn from(record: StatsRecord) -> Self {
        record.0
    }
}

impl StatsRecord {
    /// Smoothed round trip, seconds.
    pub(crate) fn smoothed_rtt(&self) -> Option<f64> {
        self.real("smoothed_rtt")
    }

    /// Smallest round trip, seconds.
    pub(crate) fn min_rtt(&self) -> Option<f64> {
        self.real("min_rtt")
    }

    /// Packets declared lost.
    pub(crate) fn packets_lost(&self) -> u64 {
        self.whole("packets_lost")
    }

    /// Packets really lost, as a share of those sent.
    pub(crate) fn loss_ratio(&self) -> f64 {
        self.real("loss_ratio").unwrap_or(0.0)
    }

    /// Congestion window, bytes.
    pub(crate) fn cwnd(&self) -> u64 {
        self.whole("cwnd")
    }

    fn real(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Json::as_f64)
    }

    fn whole(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Json::as_u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_every_field_and_the_names_that_are_read_from_it() {
        let all = record(&Stats::default());
        let mut visited = 0;
        Stats::default().visit(&mut |field, _| {
            visited += 1;
            assert!(all.contains_key(field.name), "{}", field.name);
        });
        assert_eq!(all.len(), visited);
        for name in [
            "smoothed_rtt",
            "min_rtt",
            "packets_lost",
            "loss_ratio",
            "cwnd",
        ] {
            assert!(all.contains_key(name), "{name}");
        }
    }

    #[test]
    fn what_a_server_tells_is_read_by_name_and_the_rest_left_out() {
        let told = r#"{"cwnd": 12000, "smoothed_rtt": 0.02, "min_rtt": null, "packets_lost": "x", "evil": [1]}"#;
        let record: StatsRecord = serde_json::from_str(told).unwrap();
        assert_eq!((record.cwnd(), record.packets_lost()), (12_000, 0));
        assert_eq!(
            (record.smoothed_rtt(), record.min_rtt()),
            (Some(0.02), None)
        );
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains("evil"), "{text}");
    }
}
