//! Signal K deltas that a boat might have, of every kind: each is known by its place alone, so that whoever
//! gets one can tell whether it is right.

use std::fmt::Write as _;

use towline_link::codec::Record;
use towline_link::sender::Class;

use crate::Random;

/// Milliseconds from one delta's time stamp to the next.
const STEP: u64 = 12;
const BOATS: u64 = 40;
const NUMBERS: [&str; 10] = [
    "navigation.speedOverGround",
    "navigation.courseOverGroundTrue",
    "navigation.headingMagnetic",
    "environment.wind.speedApparent",
    "environment.wind.angleApparent",
    "environment.depth.belowTransducer",
    "environment.water.temperature",
    "propulsion.port.revolutions",
    "electrical.batteries.house.voltage",
    "tanks.fuel.0.currentLevel",
];

/// Deltas without end, those of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    seed: u64,
}

/// One value: the name by which a newer one replaces it, and how it is written.
struct Value {
    name: String,
    /// Before and behind the members of the value at the empty path; the value itself otherwise.
    text: String,
}

struct Delta {
    head: String,
    values: Vec<Value>,
    is_members: bool,
}

impl Source {
    /// Those of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The delta at this place.
    ///
    /// # Panics
    /// When the codec takes no Signal K.
    pub fn record(&self, at: u64) -> Record {
        self.part(at, |_| true).expect("all of it is something")
    }

    /// What is left of it when only values with these names are taken.
    ///
    /// # Panics
    /// As [`record`](Self::record).
    pub fn part(&self, at: u64, keep: impl Fn(&str) -> bool) -> Option<Record> {
        let delta = self.delta(at);
        let kept: Vec<&str> = (delta.values.iter())
            .filter(|value| keep(&value.name))
            .map(|value| &*value.text)
            .collect();
        let list = kept.join(",");
        let text = match delta.is_members {
            true => format!(r#"{}[{{"path":"","value":{{{list}}}}}]}}]}}"#, delta.head),
            false => format!("{}[{list}]}}]}}", delta.head),
        };
        let record = Record::parse(text.as_bytes()).expect("a delta is JSON");
        (!kept.is_empty()).then_some(record)
    }

    /// The names of the values that it has.
    pub fn names(&self, at: u64) -> impl Iterator<Item = String> {
        self.delta(at).values.into_iter().map(|value| value.name)
    }

    /// The names of those of its values that a record has which is a part of it; `None` if it is none.
    pub(crate) fn names_of(&self, at: u64, part: &Record) -> Option<Vec<String>> {
        let names: Vec<String> = self.names(at).collect();
        let mut choices = (1..1_u32 << names.len()).rev();
        choices.find_map(|choice| {
            let chosen = names.iter().enumerate();
            let chosen = chosen.filter(|(at, _)| choice & 1 << at > 0);
            let chosen: Vec<String> = chosen.map(|(_, name)| name.clone()).collect();
            let left = self.part(at, |name| chosen.iter().any(|it| it == name));
            (left.as_ref() == Some(part)).then_some(chosen)
        })
    }

    /// Whether it is an alarm.
    pub fn class(&self, at: u64) -> Class {
        match self.kind(at) {
            99 => Class::Alarm,
            _ => Class::Telemetry,
        }
    }

    fn random(&self, at: u64) -> Random {
        Random::new(self.seed, at)
    }

    fn kind(&self, at: u64) -> u64 {
        self.random(at).below(100)
    }

    fn delta(&self, at: u64) -> Delta {
        let mut random = self.random(at);
        let kind = random.below(100);
        let time = timestamp(at);
        let source = random.below(3);
        let is_other = matches!(kind, 60..=77 | 90..=93);
        let context = match is_other {
            true => format!(
                "vessels.urn:mrn:imo:mmsi:2300{:05}",
                random.below(BOATS) * 977
            ),
            false => "vessels.self".to_owned(),
        };
        let list = if (94..=96).contains(&kind) {
            "meta"
        } else {
            "values"
        };
        let head = format!(
            r#"{{"context":"{context}","updates":[{{"$source":"n2k.{source}","timestamp":"{time}","{list}":"#
        );
        let name = |path: &str| format!("{context}|n2k.{source}|{list}|{path}");
        let mut values = Vec::new();
        let mut add = |path: &str, value: &str| {
            values.push(Value {
                name: name(path),
                text: format!(r#"{{"path":"{path}","value":{value}}}"#),
            });
        };
        match kind {
            0..=49 => {
                let path = random.below(NUMBERS.len() as u64);
                add(NUMBERS[path as usize], &walking(at, path));
            }
            50..=59 => {
                for path in 0..2 + random.below(3) {
                    add(NUMBERS[path as usize], &walking(at, path));
                }
            }
            60..=69 => add(NUMBERS[(kind % 2) as usize], &walking(at, kind)),
            70..=83 => {
                let place = 600_000_000 + (at % 100_000) * 17 + random.below(100);
                let value = format!(
                    r#"{{"latitude":{:?},"longitude":{:?}}}"#,
                    place as f64 / 1e7,
                    (place - 350_000_000) as f64 / 1e7
                );
                add("navigation.position", &value);
            }
            84..=88 => {
                let state = ["sailing", "motoring", "anchored", "moored"];
                let state = state[random.below(4) as usize];
                add("navigation.state", &format!(r#""{state}""#));
            }
            89 => match random.below(4) {
                0 => add("electrical.lights.anchor", "true"),
                1 => add("steering.autopilot.target", "null"),
                2 => add("design.counts", "[1,2,[3,{}],\"é\\n\"]"),
                // Some fit no datagram.
                _ => {
                    let mut text = String::new();
                    for _ in 0..random.between(10, 180) {
                        let _ = write!(text, "{:016x}", random.bits());
                    }
                    add("communication.log", &format!(r#""{text}""#));
                }
            },
            90..=93 => {
                for (member, value) in [("name", random.below(9)), ("mmsi", random.below(99))] {
                    values.push(Value {
                        name: format!("{}|{member}", name("")),
                        text: format!(r#""{member}":"{value}""#),
                    });
                }
            }
            94..=96 => add(
                NUMBERS[random.below(10) as usize],
                r#"{"units":"m/s","description":"what it is"}"#,
            ),
            97 | 98 => add("navigation.datetime", &format!(r#""{time}""#)),
            _ => {
                let state = ["normal", "alert", "alarm", "emergency"][random.below(4) as usize];
                let value = format!(
                    r#"{{"state":"{state}","method":["visual","sound"],"message":"{at}"}}"#
                );
                add("notifications.mob", &value);
            }
        }
        Delta {
            head,
            values,
            is_members: matches!(kind, 90..=93),
        }
    }
}

/// A number that goes up and down, as an instrument would give it.
fn walking(at: u64, path: u64) -> String {
    let phase = at as f64 / (300.0 + 70.0 * path as f64);
    let knots = (80.0 + 50.0 * phase.sin() + (at * 7 % 13) as f64) as i64;
    format!("{:?}", knots as f64 / 19.43844)
}

fn timestamp(at: u64) -> String {
    let millis = at * STEP;
    let (seconds, day) = (millis / 1000 % 86_400, 1 + millis / 86_400_000 % 28);
    format!(
        "2026-11-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        millis % 1000
    )
}
