//! The links of a scenario's text. A table's keys become the text that `towline relay` takes and
//! are read by the same parser, so a setting known there is known here. What only a whole path
//! can know is added: `rtt`, `profile`, `trace`, and queues counted in BDPs or in time.

use std::time::Duration;

use towline_sim::{LinkConfig, LinkConfigError, Profile, RateSchedule};

use super::reader::{Place, TextError, Value};
use crate::scenario::HEADERS;
use crate::scenario::capacity::Capacity;

/// Gives the text behind the name of a file that a scenario mentions, or says why not.
pub(super) type Files<'f> = &'f dyn Fn(&str) -> Result<String, String>;

/// Fastest link, bits a second.
pub(super) const MAX_RATE: u64 = 100_000_000_000;
/// Longest delay or jitter.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(60);
/// Largest queue, bytes.
pub(super) const MAX_QUEUE: u64 = 1 << 30;

/// Longest trace, bytes: about 100,000 packets.
const MAX_TRACE: usize = 1 << 20;
/// Settings one direction may have.
const MAX_SETTINGS: usize = 200;

/// What a text says of one direction, in the order of the text.
#[derive(Clone, Debug, Default)]
pub(super) struct Link<'t> {
    profile: Option<(Profile, Place<'t>)>,
    settings: Vec<Setting<'t>>,
    queue: Queue<'t>,
}

#[derive(Clone, Debug)]
struct Setting<'t> {
    name: String,
    value: String,
    place: Place<'t>,
}

/// The limit of the queue.
#[derive(Clone, Debug, Default)]
enum Queue<'t> {
    /// Not mentioned: as the link's own default.
    #[default]
    Default,
    /// Of an earlier link; a buffer keeps its bytes when the rate changes.
    Fixed(u64),
    Bytes(u64, Place<'t>),
    /// Times rate × round trip.
    Products(f64, Place<'t>),
    /// Of waiting at the link's rate.
    Time(Duration, Place<'t>),
}

impl<'t> Link<'t> {
    /// Puts the keys of a table over what there is. `rtt` is for whoever sees both directions.
    pub(super) fn overlay(
        &mut self,
        values: &[Value<'t>],
        files: Files<'_>,
    ) -> Result<(), TextError> {
        let mut fresh: Vec<&str> = Vec::new();
        for value in values {
            match value.name {
                "profile" => {
                    let profile = value.string()?.parse::<Profile>();
                    let profile = profile.map_err(|error| value.place.error(error.problem()))?;
                    self.profile = Some((profile, value.place.clone()));
                }
                "queue" => self.queue = queue(value)?,
                name => {
                    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase());
                    if !is_plain {
                        return Err(value.place.error("there is no such setting of a link"));
                    }
                    let name = match name {
                        "trace" => "steps",
                        _ => name,
                    };
                    if !fresh.contains(&name) {
                        self.settings.retain(|setting| {
                            one_of(setting.name.as_str()) != one_of(name)
                                || fresh.contains(&setting.name.as_str())
                        });
                        fresh.push(name);
                    }
                    for text in texts(value, files)? {
                        if self.settings.len() >= MAX_SETTINGS {
                            return Err(value.place.error(format!(
                                "is more than the {MAX_SETTINGS} settings a link may have"
                            )));
                        }
                        self.settings.push(Setting {
                            name: name.to_owned(),
                            value: text,
                            place: value.place.clone(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets the one-way delay to half a round trip.
    pub(super) fn set_round_trip(&mut self, rtt: Duration, place: &Place<'t>) {
        self.settings.retain(|setting| setting.name != "delay");
        self.settings.push(Setting {
            name: "delay".to_owned(),
            value: format!("{}ns", (rtt / 2).as_nanos()),
            place: place.clone(),
        });
    }

    /// Keeps the buffer of `before`, unless a later [`Self::overlay`] says otherwise.
    pub(super) fn keep_queue(&mut self, before: &LinkConfig) {
        self.queue = Queue::Fixed(before.queue_limit());
    }

    /// The link but for its queue.
    fn without_queue(&self) -> Result<LinkConfig, TextError> {
        let profile = self.profile.as_ref().map(|(profile, _)| profile.name());
        let settings = self.settings.iter().map(Setting::item);
        let items: Vec<String> = profile
            .map(str::to_owned)
            .into_iter()
            .chain(settings)
            .collect();
        let mut config = LinkConfig::default();
        if !items.is_empty() {
            config = items
                .join(",")
                .parse()
                .map_err(|error| self.blame(&error))?;
        }
        let is_said = |name: &str| self.settings.iter().any(|s| s.name == name);
        let steps = config.schedule.iter().flat_map(RateSchedule::steps);
        let bounds = [
            (
                "rate",
                config.rate.is_some_and(|rate| rate > MAX_RATE),
                "100gbit",
            ),
            (
                "steps",
                steps.map(|(_, rate)| rate).max() > Some(MAX_RATE),
                "100gbit",
            ),
            ("delay", config.delay > MAX_DELAY, "60s"),
            ("jitter", config.jitter > MAX_DELAY, "60s"),
            ("reorder", config.reorder_delay > MAX_DELAY, "60s"),
        ];
        for (name, is_broken, most) in bounds {
            let setting = self.settings.iter().find(|s| s.name == name);
            if let Some(setting) = setting.filter(|_| is_broken) {
                return Err(setting.place.error(format!("is more than {most}")));
            }
        }
        if !is_said("overhead") {
            config.overhead = HEADERS;
        }
        Ok(config)
    }

    /// The setting that the parser complains of, as an error in its place.
    fn blame(&self, error: &LinkConfigError) -> TextError {
        let by_item = self.settings.iter().find(|s| s.item() == error.item());
        let by_name = || self.settings.iter().find(|s| s.name == error.item());
        let profile = || self.profile.as_ref().map(|(_, place)| place);
        let more = match error.problem().contains("no such setting") {
            true => "; and in a scenario profile, trace, and rtt in [path]",
            false => "",
        };
        let place = by_item
            .or_else(by_name)
            .or(self.settings.last())
            .map(|setting| &setting.place)
            .or_else(profile);
        match place {
            Some(place) => place.error(format!("{}{more}", error.problem())),
            None => TextError {
                line: 1,
                column: 1,
                key: "path".to_owned(),
                value: String::new(),
                problem: error.problem().to_owned(),
            },
        }
    }
}

impl Setting<'_> {
    fn item(&self) -> String {
        format!("{}={}", self.name, self.value)
    }
}

/// What makes a link's settings long.
pub(super) fn items(config: &LinkConfig) -> usize {
    let steps = config.schedule.iter().flat_map(RateSchedule::steps);
    steps.count() + config.mtu_steps.len() + config.blackouts.len() + config.drop_list.len()
}

/// The two links of a path.
pub(super) fn pair(forward: &Link<'_>, back: &Link<'_>) -> Result<[LinkConfig; 2], TextError> {
    let mut configs = [forward.without_queue()?, back.without_queue()?];
    let rtt = configs[0].delay + configs[1].delay;
    for (config, link) in configs.iter_mut().zip([forward, back]) {
        config.queue = match &link.queue {
            Queue::Default => None,
            Queue::Fixed(bytes) => Some(*bytes),
            Queue::Bytes(bytes, place) => Some(bounded(*bytes as f64, place)?),
            Queue::Products(factor, place) => {
                Some(bounded(carried(config, rtt, place)? * factor, place)?)
            }
            Queue::Time(time, place) => Some(bounded(carried(config, *time, place)?, place)?),
        };
    }
    Ok(configs)
}

/// Bytes the link carries in `time`.
fn carried(config: &LinkConfig, time: Duration, place: &Place<'_>) -> Result<f64, TextError> {
    let scheduled = || config.schedule.as_ref().map(|s| Capacity::new(s).typical());
    let Some(rate) = config.rate.or_else(scheduled) else {
        return Err(place.error("needs a rate; without one, give bytes"));
    };
    Ok(rate as f64 / 8.0 * time.as_secs_f64())
}

fn bounded(bytes: f64, place: &Place<'_>) -> Result<u64, TextError> {
    // One packet always fits: less would drop everything.
    match (1500.0..=MAX_QUEUE as f64).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err(place.error(format!(
            "is a queue of {bytes:.0} bytes; possible are 1500 (one packet) to {MAX_QUEUE}"
        ))),
    }
}

/// A list is several settings of the same name, or, of steps, MTUs and of whole numbers, one.
fn texts(value: &Value<'_>, files: Files<'_>) -> Result<Vec<String>, TextError> {
    if value.name == "trace" {
        return Ok(vec![trace(value, files)?]);
    }
    let Some(list) = value.list() else {
        return Ok(vec![value.setting()?]);
    };
    let texts: Vec<String> = list.iter().map(Value::setting).collect::<Result<_, _>>()?;
    let are_places = texts
        .iter()
        .all(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match (texts.is_empty(), are_places) {
        (true, _) => Err(value.place.error("is an empty list; leave it out")),
        (false, _) if ["steps", "mtu"].contains(&value.name) => Ok(vec![texts.join(";")]),
        (false, true) => Ok(vec![texts.join("+")]),
        (false, false) => Ok(texts),
    }
}

/// The steps of a recorded trace.
fn trace(value: &Value<'_>, files: Files<'_>) -> Result<String, TextError> {
    let wrong = |problem: String| value.place.error(problem);
    let text = files(value.string()?).map_err(wrong)?;
    if text.len() > MAX_TRACE {
        return Err(wrong(format!("is a file of more than {MAX_TRACE} bytes")));
    }
    let schedule = RateSchedule::from_delivery_trace(&text)
        .map_err(|error| wrong(format!("{}: {}", error.item(), error.problem())))?;
    let link = LinkConfig {
        schedule: Some(schedule),
        ..LinkConfig::default()
    };
    // As text it goes through the parser with the rest, which knows what goes with steps.
    let text = link.to_string();
    let steps = text.strip_prefix("steps=").unwrap_or(&text);
    Ok(steps.to_owned())
}

fn queue<'t>(value: &Value<'t>) -> Result<Queue<'t>, TextError> {
    let text = value.setting()?;
    let place = value.place.clone();
    let hint =
        "write bytes such as 64kb, bandwidth-delay products such as 1bdp, or a time such as 500ms";
    if let Some(factor) = text.strip_suffix("bdp") {
        let is_plain = factor.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        return match factor.trim().parse::<f64>() {
            Ok(factor) if is_plain => Ok(Queue::Products(factor, place)),
            _ => Err(place.error(format!("`{factor}` is no number of products; {hint}"))),
        };
    }
    if let Ok(link) = format!("delay={text}").parse::<LinkConfig>() {
        return Ok(Queue::Time(link.delay, place));
    }
    let bytes = value.large_bytes(0..=u64::MAX);
    match bytes {
        Ok(bytes) => Ok(Queue::Bytes(bytes, place)),
        Err(mut error) => {
            let problem = error.problem.split(';').next().unwrap_or_default();
            error.problem = format!("{problem}; {hint}");
            Err(error)
        }
    }
}

/// A rate and steps are one thing, and the newer table says which.
fn one_of(name: &str) -> &str {
    match name {
        "steps" => "rate",
        _ => name,
    }
}
