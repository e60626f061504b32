//! XDR: transducers, by the names that makers give them. Signal K's own parser leaves them to plugins.

use super::sentence::{Refused, Sentence};
use super::values::{Values, celsius, number, radians};

/// Reads groups of type, value, unit and name; those not known here are left out.
pub(super) fn read(sentence: &Sentence<'_>, values: &mut Values) -> Result<(), Refused> {
    let (mut roll, mut pitch, mut yaw) = (None, None, None);
    for at in (0..sentence.len()).step_by(4) {
        let Some(value) = sentence.number(at + 1) else {
            continue;
        };
        let kind = sentence.text(at).to_ascii_uppercase();
        let unit = sentence.text(at + 2).to_ascii_uppercase();
        let name = sentence.text(at + 3).to_ascii_uppercase();
        match (kind.as_str(), unit.as_str(), name.as_str()) {
            ("A", "D", "ROLL" | "HEEL" | "HEELANGLE") => roll = Some(radians(value)),
            ("A", "D", "PITCH" | "PTCH" | "TRIM") => pitch = Some(radians(value)),
            ("A", "D", "YAW") => yaw = Some(radians(value)),
            ("C", "C", name) => {
                let path = match name {
                    "AIRTEMP" | "TEMPAIR" | "AIR" | "ENV_OUTAIR_T" | "ENV_OUTSIDE_T" => {
                        "environment.outside.temperature"
                    }
                    "WATERTEMP" | "WTEMP" | "WATER" | "ENV_WATER_T" => {
                        "environment.water.temperature"
                    }
                    "ENV_INAIR_T" | "ENV_INSIDE_T" | "INTEMP" => "environment.inside.temperature",
                    _ => continue,
                };
                values.number(path, Some(celsius(value)));
            }
            ("P", "B" | "P", "BAROMETER" | "BARO" | "ENV_ATMOS_P" | "PRESSURE") => {
                let pascal = if unit == "B" {
                    value * 100_000.0
                } else {
                    value
                };
                values.number("environment.outside.pressure", Some(pascal));
            }
            ("H", "P" | "%", name) => {
                let path = match name {
                    "ENV_INSIDE_H" | "ENV_INAIR_H" => "environment.inside.relativeHumidity",
                    "HUMIDITY" | "AIRHUMIDITY" | "ENV_OUTSIDE_H" | "ENV_OUTAIR_H" => {
                        "environment.outside.relativeHumidity"
                    }
                    _ => continue,
                };
                values.number(path, Some(value / 100.0));
            }
            _ => {}
        }
    }
    if roll.is_some() || pitch.is_some() || yaw.is_some() {
        let (roll, pitch, yaw) = (number(roll), number(pitch), number(yaw));
        values.json(
            "navigation.attitude",
            &format!(r#"{{"roll":{roll},"pitch":{pitch},"yaw":{yaw}}}"#),
        );
    }
    if values.is_empty() {
        let names = (0..sentence.len()).step_by(4);
        let names: Vec<&str> = names.map(|at| sentence.text(at + 3)).collect();
        return Err(Refused::Unsupported(format!("XDR of {}", names.join(", "))));
    }
    Ok(())
}
