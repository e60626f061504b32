//! The configuration of `towline link run`: TOML, in which every word that is not known is an error.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use towline::identity::KeyPin;
use towline_link::Reduction;

use crate::exit::Failure;
use crate::units::{parse_duration, parse_rate, parse_size};
use crate::url::{Url, parse_key_pin, parse_link_url};

/// More decimals are in no double that somebody measured.
const MAX_DECIMALS: u8 = 15;

/// What a file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Who this end is, for the other and for people.
    pub(super) name: String,
    /// Where records go: then this is an end that sends.
    pub(super) peer: Option<Peer>,
    /// Where they come from: then this is an end that receives.
    pub(super) listen: Option<Listen>,
    pub(super) spool: Option<Spool>,
    #[serde(default)]
    pub(super) live: Live,
    #[serde(default)]
    pub(super) limit: Limit,
    #[serde(default, rename = "source")]
    pub(super) sources: Vec<Source>,
    #[serde(default, rename = "reduce")]
    pub(super) reductions: Vec<Reduce>,
    #[serde(default, rename = "client")]
    pub(super) clients: Vec<Client>,
    #[serde(default, rename = "sink")]
    pub(super) sinks: Vec<Sink>,
    /// Where numbers are asked for: `towline link show` and `towline top`.
    pub(super) control: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peer {
    #[serde(deserialize_with = "url")]
    pub(super) url: Url,
    #[serde(default, deserialize_with = "maybe_key")]
    pub(super) key: Option<KeyPin>,
    #[serde(default)]
    pub(super) fallback: Fallback,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fallback {
    #[default]
    Tls,
    Never,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listen {
    pub(super) address: SocketAddr,
    /// Links over TLS and TCP are taken, too.
    #[serde(default = "yes")]
    pub(super) tls: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spool {
    pub(super) path: PathBuf,
    #[serde(default = "two_gib", deserialize_with = "size")]
    pub(super) max: u64,
    #[serde(default)]
    pub(super) full: Full,
}

/// What a full spool does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Full {
    /// The oldest records go.
    #[default]
    DropOldest,
    /// Sources wait.
    Wait,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Live {
    #[serde(deserialize_with = "duration")]
    pub(super) deadline: Duration,
    pub(super) alarms: Vec<String>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(250),
            alarms: vec!["notifications.*".to_owned()],
        }
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    /// Bytes a second.
    #[serde(default, deserialize_with = "maybe_rate")]
    pub(super) rate: Option<u64>,
    /// Bytes a month, UTC.
    #[serde(default, deserialize_with = "maybe_size")]
    pub(super) month: Option<u64>,
}

/// Fewer digits, or fewer values, of some paths.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reduce {
    path: String,
    decimals: Option<u8>,
    #[serde(default, deserialize_with = "maybe_duration")]
    every: Option<Duration>,
}

impl Reduce {
    pub(super) fn reduction(&self) -> Reduction {
        Reduction {
            path: self.path.clone(),
            decimals: self.decimals,
            every: self.every,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Source {
    Signalk {
        url: String,
        token: Option<String>,
        context: Option<String>,
        /// Which of its paths; all, if none is named.
        #[serde(default)]
        paths: Vec<String>,
    },
    Nmea0183 {
        /// `tcp://host:port`, `udp://address:port` or a file, such as a serial port.
        url: String,
        label: Option<String>,
        context: Option<String>,
    },
    Stdin {},
    File {
        path: PathBuf,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    pub(super) name: String,
    #[serde(deserialize_with = "key")]
    pub(super) key: KeyPin,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Sink {
    Signalk {
        url: String,
        token: Option<String>,
    },
    Stdout {
        #[serde(default)]
        live: bool,
        #[serde(default)]
        ids: bool,
    },
    File {
        path: PathBuf,
        #[serde(default)]
        ids: bool,
    },
    Nats {
        url: String,
        subject: Option<String>,
        stream: Option<String>,
        token: Option<String>,
        /// A file that `nsc` made.
        credentials: Option<PathBuf>,
        /// For so long a record that comes again is known by its id.
        #[serde(default, deserialize_with = "maybe_duration")]
        horizon: Option<Duration>,
        replicas: Option<usize>,
        /// A folder in which it is kept what the server has.
        state: PathBuf,
    },
    Postgres {
        url: String,
    },
}

impl Config {
    /// Reads a file.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let place = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("{place}: {error}")))?;
        let config = Self::parse(&text)
            .map_err(|error| Failure::usage(format!("{place}: {}", error.trim_end())))?;
        Ok(config)
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check()?;
        Ok(config)
    }

    /// What the parts have to do with each other.
    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.len() > towline_link::MAX_NAME {
            let most = towline_link::MAX_NAME;
            return Err(format!("name: 1 to {most} bytes are wanted"));
        }
        match (&self.peer, &self.listen) {
            (None, None) => {
                return Err(
                    "give [peer] to send records to, or [listen] to receive them".to_owned(),
                );
            }
            (Some(_), Some(_)) => {
                return Err(
                    "[peer] and [listen] in one file: an end sends or receives; run two".to_owned(),
                );
            }
            (Some(peer), None) => {
                if peer.key.is_none() && peer.url.pins.is_empty() {
                    return Err(
                        "[peer]: key is missing; `towline link keygen` prints it at the other end"
                            .to_owned(),
                    );
                }
                if self.sources.is_empty() {
                    return Err("no [[source]]: there is nothing to send".to_owned());
                }
                for Reduce {
                    path,
                    decimals,
                    every,
                } in &self.reductions
                {
                    if decimals.is_none() && every.is_none() {
                        return Err(format!(
                            "[[reduce]] {path:?}: give decimals, or every, or both"
                        ));
                    }
                    if decimals.is_some_and(|decimals| decimals > MAX_DECIMALS) {
                        return Err(format!(
                            "[[reduce]] {path:?}: decimals from 0 to {MAX_DECIMALS} are wanted"
                        ));
                    }
                }
                if !self.sinks.is_empty() || !self.clients.is_empty() {
                    return Err(
                        "[[sink]] and [[client]] belong to the end with [listen]".to_owned()
                    );
                }
            }
            (None, Some(_)) => {
                if self.sinks.is_empty() {
                    return Err("no [[sink]]: there is nowhere to put what is received".to_owned());
                }
                if !self.sources.is_empty() || !self.reductions.is_empty() || self.spool.is_some() {
                    return Err(
                        "[[source]], [[reduce]] and [spool] belong to the end with [peer]"
                            .to_owned(),
                    );
                }
                if self.live != Live::default() || self.limit != Limit::default() {
                    return Err("[live] and [limit] belong to the end with [peer]".to_owned());
                }
                let mut names = HashSet::new();
                for client in &self.clients {
                    if !names.insert(&client.name) {
                        return Err(format!(
                            "two [[client]] are called {:?}: give each another name",
                            client.name
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn yes() -> bool {
    true
}

fn two_gib() -> u64 {
    2 << 30
}

/// A text by one of the command line's readers; `2 GiB` is as good as `2GiB`.
fn read<'de, D: Deserializer<'de>, T>(
    from: D,
    reader: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    let packed: String = text.split_whitespace().collect();
    reader(&packed).map_err(serde::de::Error::custom)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    read(from, parse_duration)
}

fn maybe_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    read(from, parse_duration).map(Some)
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    read(from, parse_size)
}

fn maybe_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    read(from, parse_size).map(Some)
}

fn maybe_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    read(from, parse_rate).map(Some)
}

fn key<'de, D: Deserializer<'de>>(from: D) -> Result<KeyPin, D::Error> {
    read(from, parse_key_pin)
}

fn maybe_key<'de, D: Deserializer<'de>>(from: D) -> Result<Option<KeyPin>, D::Error> {
    read(from, parse_key_pin).map(Some)
}

fn url<'de, D: Deserializer<'de>>(from: D) -> Result<Url, D::Error> {
    read(from, parse_link_url)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOAT: &str = r#"
name = "vela"
[peer]
url = "towline://shore.example:4460"
key = "sha256/48574cdb13290480f46402aa14be0302199050f4a7d0f6dbde14b7754110db3b"
fallback = "tls"
[spool]
path = "/var/lib/towline"
max = "2 GiB"
[live]
deadline = "250 ms"
alarms = ["notifications.*"]
[limit]
rate = "32 kbit/s"
month = "2 GB"
[[source]]
kind = "signalk"
url = "ws://127.0.0.1:3000"
"#;

    #[test]
    fn a_boat_s_file_is_read() {
        let config = Config::parse(BOAT).unwrap();
        assert_eq!(config.peer.as_ref().unwrap().url.port, 4460);
        let without = Config::parse(&BOAT.replace(":4460", "")).unwrap();
        assert_eq!(without.peer.unwrap().url.port, 4460);
        assert_eq!(config.spool.unwrap().max, 2 << 30);
        assert_eq!(
            (config.limit.rate, config.limit.month),
            (Some(4_000), Some(2_000_000_000))
        );
        assert!(
            matches!(&config.sources[..], [Source::Signalk { url, .. }] if url == "ws://127.0.0.1:3000")
        );
    }

    #[test]
    fn ends_are_told_what_they_are_to_ask_for_and_with_whose_name() {
        let text = BOAT.to_owned() + "paths = [\"navigation.*\"]\n";
        let config = Config::parse(&text).unwrap();
        assert!(
            matches!(&config.sources[..], [Source::Signalk { paths, .. }] if paths == &["navigation.*"])
        );
        let shore = r#"
name = "shore"
[listen]
address = "0.0.0.0:4460"
[[sink]]
kind = "nats"
url = "tls://connect.ngs.global"
credentials = "/etc/towline/boats.creds"
state = "/var/lib/towline/nats"
"#;
        let config = Config::parse(shore).unwrap();
        let expected = Path::new("/etc/towline/boats.creds");
        assert!(
            matches!(&config.sinks[..], [Sink::Nats { credentials: Some(file), .. }] if file == expected)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, why) in [
            ("name = \"vela\"", "", "name"),
            ("max = ", "maximum = ", "maximum"),
            ("2 GiB", "2 parsecs", "not a size"),
            ("fallback = \"tls\"", "fallback = \"maybe\"", "maybe"),
            ("key = \"sha256/4", "key = \"4", "key"),
            (
                "[[source]]\nkind = \"signalk\"\nurl = \"ws://127.0.0.1:3000\"",
                "",
                "no [[source]]",
            ),
            ("kind = \"signalk\"", "kind = \"mqtt\"", "mqtt"),
        ] {
            let text = BOAT.replace(from, to);
            assert_ne!(text, BOAT, "{from}");
            let error = Config::parse(&text).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
