//! What each kind of sentence says, in the order of its letters. Field numbers are those after the address.

use super::sentence::{Refused, Sentence};
use super::time;
use super::values::{Values, celsius, km_per_hour, knots, nautical_miles, radians};

/// Metres in a foot, as Signal K's parser has it for depths.
const FOOT: f64 = 0.3048;

const QUALITIES: [&str; 10] = [
    "no GPS",
    "GNSS Fix",
    "DGNSS fix",
    "Precise GNSS",
    "RTK fixed integer",
    "RTK float",
    "Estimated (DR) mode",
    "Manual input",
    "Simulator mode",
    "Error",
];

const POSITION: &str = "navigation.position";
const COG_TRUE: &str = "navigation.courseOverGroundTrue";
const SOG: &str = "navigation.speedOverGround";
const HEADING_TRUE: &str = "navigation.headingTrue";
const HEADING_MAGNETIC: &str = "navigation.headingMagnetic";
const BELOW_SURFACE: &str = "environment.depth.belowSurface";
const BELOW_TRANSDUCER: &str = "environment.depth.belowTransducer";
const BELOW_KEEL: &str = "environment.depth.belowKeel";
const WIND_SPEED_TRUE: &str = "environment.wind.speedTrue";
const CROSS_TRACK: &str = "navigation.courseRhumbline.crossTrackError";

/// Reads a sentence of one kind. `clock` gives a time of day its date.
pub(super) fn read(s: &Sentence<'_>, clock: i64, values: &mut Values) -> Result<(), Refused> {
    let angle = |at: usize| s.number(at).map(radians);
    match s.kind {
        "APB" => route_to_steer(s, values),
        "DBK" => values.number_if(BELOW_KEEL, depth(s)),
        "DBS" => values.number_if(BELOW_SURFACE, depth(s)),
        "DBT" => values.number(BELOW_TRANSDUCER, depth(s)),
        "DPT" => depth_with_offset(s, values),
        "GGA" => fix(s, clock, values),
        "GLL" if s.is(5, "V") => {}
        "GLL" => {
            values.timestamp = time::of_day(s.text(4)).map(|of_day| time::near(clock, of_day));
            values.position(POSITION, s.coordinate(0, 90.0), s.coordinate(2, 180.0));
        }
        "HDG" => heading(s, values),
        "HDM" => values.number_if(HEADING_MAGNETIC, angle(0)),
        "HDT" => values.number_if(HEADING_TRUE, angle(0)),
        "MTW" => {
            let temperature = s.number(0).map(celsius);
            values.number("environment.water.temperature", temperature);
        }
        "MWD" => wind_direction(s, values),
        "MWV" if s.is(4, "A") => wind(s, values),
        "MWV" => {}
        "RMB" => waypoint(s, values),
        "RMC" => recommended_minimum(s, clock, values),
        "ROT" if s.is(1, "A") => {
            values.number_if("navigation.rateOfTurn", angle(0).map(|rate| rate / 60.0));
        }
        "RSA" if s.is(1, "A") => values.number_if("steering.rudderAngle", angle(0)),
        "ROT" | "RSA" => {}
        "VDR" => current(s, values),
        "VHW" => {
            values.number_if(HEADING_TRUE, angle(0));
            values.number_if(HEADING_MAGNETIC, angle(2));
            values.number_if("navigation.speedThroughWater", s.number(4).map(knots));
        }
        "VLW" => {
            values.number_if("navigation.log", s.number(0).map(nautical_miles));
            values.number_if("navigation.trip.log", s.number(2).map(nautical_miles));
        }
        "VPW" => {
            let speed = s.number(2).or_else(|| s.number(0).map(knots));
            values.number_if("performance.velocityMadeGood", speed);
        }
        "VTG" => track(s, values),
        "VWR" => wind_apparent(s, values),
        "VWT" => wind_true(s, values),
        "XTE" if s.is(0, "V") || s.is(1, "V") => {}
        "XTE" => values.number_if(CROSS_TRACK, cross_track(s, 2)),
        "ZDA" => date_and_time(s, values),
        kind => return Err(Refused::Unsupported(kind.to_owned())),
    }
    Ok(())
}

/// Metres, from metres or from feet.
fn depth(s: &Sentence<'_>) -> Option<f64> {
    s.number(2).or_else(|| s.number(0).map(|feet| feet * FOOT))
}

fn depth_with_offset(s: &Sentence<'_>, values: &mut Values) {
    let depth = s.number(0);
    values.number(BELOW_TRANSDUCER, depth);
    match s.number(1) {
        Some(offset) if offset > 0.0 => {
            values.number("environment.depth.surfaceToTransducer", Some(offset));
            values.number_if(BELOW_SURFACE, depth.map(|depth| depth + offset));
        }
        Some(offset) if offset < 0.0 => {
            values.number("environment.depth.transducerToKeel", Some(-offset));
            values.number_if(BELOW_KEEL, depth.map(|depth| depth + offset));
        }
        _ => {}
    }
}

fn fix(s: &Sentence<'_>, clock: i64, values: &mut Values) {
    values.timestamp = time::of_day(s.text(0)).map(|of_day| time::near(clock, of_day));
    let quality = s.text(5).parse::<usize>().ok();
    let is_void = quality == Some(0);
    let at = |at: usize, most: f64| s.coordinate(at, most).filter(|_| !is_void);
    values.position(POSITION, at(1, 90.0), at(3, 180.0));
    if let Some(quality) = quality.and_then(|quality| QUALITIES.get(quality)) {
        values.text("navigation.gnss.methodQuality", quality);
    }
    for (path, at) in [
        ("satellites", 6),
        ("antennaAltitude", 8),
        ("horizontalDilution", 7),
        ("geoidalSeparation", 10),
        ("differentialAge", 12),
        ("differentialReference", 13),
    ] {
        values.number_if(&format!("navigation.gnss.{path}"), s.number(at));
    }
}

fn heading(s: &Sentence<'_>, values: &mut Values) {
    let signed = |at: usize| {
        let sign = if s.text(at + 1) == "E" { 1.0 } else { -1.0 };
        s.number(at).map(|value| value * sign)
    };
    let (compass, deviation, variation) = (s.number(0), signed(1), signed(3));
    let magnetic = compass.map(|compass| compass + deviation.unwrap_or(0.0));
    values.number_if(HEADING_MAGNETIC, magnetic.map(radians));
    if deviation.is_some() {
        values.number_if("navigation.headingCompass", compass.map(radians));
    }
    if let Some(variation) = variation {
        let heading = magnetic.map(|magnetic| radians(magnetic + variation));
        values.number_if(HEADING_TRUE, heading);
    }
    values.number_if("navigation.magneticVariation", variation.map(radians));
    values.number_if("navigation.magneticDeviation", deviation.map(radians));
}

fn recommended_minimum(s: &Sentence<'_>, clock: i64, values: &mut Values) {
    let of_day = time::of_day(s.text(0));
    let date = time::date(s.text(8));
    values.timestamp = match (date, of_day) {
        (Some(date), Some(of_day)) => Some(date + of_day),
        (None, Some(of_day)) => Some(time::near(clock, of_day)),
        _ => None,
    };
    values.is_dated = date.is_some() && of_day.is_some();
    let is_void = s.is(1, "V");
    let valid = |value: Option<f64>| value.filter(|_| !is_void);
    values.position(
        POSITION,
        valid(s.coordinate(2, 90.0)),
        valid(s.coordinate(4, 180.0)),
    );
    values.number(COG_TRUE, valid(s.number(7).map(radians)));
    let speed = s.number(6).filter(|&speed| speed >= 0.0);
    values.number(SOG, valid(speed.map(knots)));
    let variation = match s.text(10) {
        "E" => s.number(9),
        "W" => s.number(9).map(|degrees| -degrees),
        _ => None,
    };
    values.number("navigation.magneticVariation", variation.map(radians));
    if values.is_dated {
        stamp(values, true);
    }
}

fn date_and_time(s: &Sentence<'_>, values: &mut Values) {
    let year = s.text(3);
    let year = year.get(year.len().saturating_sub(2)..).unwrap_or_default();
    let date = time::date(&format!("{:0>2}{:0>2}{year}", s.text(1), s.text(2)));
    if let (Some(date), Some(of_day)) = (date, time::of_day(s.text(0))) {
        values.timestamp = Some(date + of_day);
        values.is_dated = true;
        stamp(values, false);
    }
}

/// The sentence's own time as values.
fn stamp(values: &mut Values, is_of_variation: bool) {
    let Some((millis, text)) = values
        .timestamp
        .and_then(|millis| Some((millis, time::format(millis)?)))
    else {
        return;
    };
    if is_of_variation {
        let seconds = millis.div_euclid(1000).to_string();
        values.json("navigation.magneticVariationAgeOfService", &seconds);
    }
    values.text("navigation.datetime", &text);
}

fn track(s: &Sentence<'_>, values: &mut Values) {
    let angle = |at: usize| s.number(at).map(radians);
    let kmh = s.number(6).filter(|_| s.is(7, "K")).map(km_per_hour);
    let kn = s.number(4).filter(|_| s.is(5, "N")).map(knots);
    let above = |speed: Option<f64>| speed.filter(|&speed| speed > 0.0);
    let speed = above(kmh).or(above(kn)).or(kmh).or(kn);
    let (magnetic, over_ground) = (angle(2), angle(0));
    if magnetic.is_none() && over_ground.is_none() && speed.is_none() {
        return;
    }
    values.number("navigation.courseOverGroundMagnetic", magnetic);
    values.number(COG_TRUE, over_ground);
    values.number(SOG, speed.map(|speed| speed.max(0.0)));
}

/// From 0 to 360, or from the bow to either side, as -180 to 180.
fn wind_angle(degrees: f64) -> f64 {
    let degrees = degrees % 360.0;
    if degrees > 180.0 {
        degrees - 360.0
    } else {
        degrees
    }
}

fn wind(s: &Sentence<'_>, values: &mut Values) {
    let (speed_path, angle_path) = match s.is(1, "R") {
        true => (
            "environment.wind.speedApparent",
            "environment.wind.angleApparent",
        ),
        false => (WIND_SPEED_TRUE, "environment.wind.angleTrueWater"),
    };
    let speed = s.number(2).map(|speed| match s.text(3) {
        "K" | "k" => km_per_hour(speed),
        "N" | "n" => knots(speed),
        _ => speed,
    });
    let angle = s.number(0).map(|angle| radians(wind_angle(angle)));
    values.number_if(speed_path, speed);
    values.number_if(angle_path, angle);
}

fn wind_direction(s: &Sentence<'_>, values: &mut Values) {
    let direction = |at: usize, letter: &str| s.number(at).filter(|_| s.is(at + 1, letter));
    let (over_ground, magnetic) = (direction(0, "T"), direction(2, "M"));
    let metres = direction(6, "M");
    let speed = metres.or_else(|| direction(4, "N").map(knots));
    if (over_ground.is_none() && magnetic.is_none()) || speed.is_none() {
        return;
    }
    let path = "environment.wind.directionTrue";
    values.number_if(path, over_ground.map(radians));
    let path = "environment.wind.directionMagnetic";
    values.number_if(path, magnetic.map(radians));
    values.number(WIND_SPEED_TRUE, speed);
}

fn wind_apparent(s: &Sentence<'_>, values: &mut Values) {
    let side = if s.is(1, "R") { 1.0 } else { -1.0 };
    let speed = s.number(2).map(knots).or_else(|| s.number(4));
    let speed = speed.or_else(|| s.number(6).map(km_per_hour));
    let is_sided = s.is(1, "R") || s.is(1, "L");
    let angle = s.number(0).filter(|_| is_sided);
    let angle = angle.map(|angle| radians(angle * side));
    values.number_if("environment.wind.angleApparent", angle);
    values.number_if("environment.wind.speedApparent", speed);
}

fn wind_true(s: &Sentence<'_>, values: &mut Values) {
    let side = match s.text(1) {
        "R" => 1.0,
        "L" => -1.0,
        _ => return,
    };
    let in_unit = |at: usize, letter: &str| s.number(at).filter(|_| s.text(at + 1) == letter);
    let speed = in_unit(4, "M")
        .or_else(|| in_unit(6, "K").map(km_per_hour))
        .or_else(|| in_unit(2, "N").map(knots));
    if let (Some(angle), Some(speed)) = (s.number(0), speed) {
        values.number(WIND_SPEED_TRUE, Some(speed));
        let angle = radians(wind_angle(angle)) * side;
        values.number("environment.wind.angleTrueWater", Some(angle));
    }
}

fn current(s: &Sentence<'_>, values: &mut Values) {
    let angle = |at: usize| super::values::number(s.number(at).map(radians));
    if s.number(4).is_none() && s.number(0).is_none() && s.number(2).is_none() {
        return;
    }
    let drift = super::values::number(s.number(4).map(knots));
    values.json(
        "environment.current",
        &format!(
            r#"{{"setTrue":{},"setMagnetic":{},"drift":{drift}}}"#,
            angle(0),
            angle(2)
        ),
    );
}

/// Metres by which the track is missed, from a distance, the side to steer to and the unit; left is positive.
fn cross_track(s: &Sentence<'_>, at: usize) -> Option<f64> {
    let distance = s.number(at)?;
    let side = match s.text(at + 1).to_ascii_uppercase().as_str() {
        "L" => 1.0,
        "R" => -1.0,
        _ => return None,
    };
    Some(match s.is(at + 2, "N") {
        true => side * nautical_miles(distance),
        false => side * (distance * 1000.0),
    })
}

fn waypoint(s: &Sentence<'_>, values: &mut Values) {
    if s.is(0, "V") {
        return;
    }
    let next = |path: &str| format!("navigation.courseRhumbline.nextPoint.{path}");
    // By way of kilometres, as Signal K's parser does it.
    let metres = |miles: f64| nautical_miles_by_km(miles);
    values.position(
        &next("position"),
        s.coordinate(5, 90.0),
        s.coordinate(7, 180.0),
    );
    values.number_if(&next("bearingTrue"), s.number(10).map(radians));
    let speed = s.number(11).map(|speed| knots(speed.max(0.0)));
    values.number_if(&next("velocityMadeGood"), speed);
    values.number_if(&next("distance"), s.number(9).map(metres));
    let side = if s.is(2, "L") { 1.0 } else { -1.0 };
    let missed = s.number(1).map(|miles| metres(miles * side));
    values.number_if(CROSS_TRACK, missed);
    if !s.text(4).is_empty() {
        values.text(&next("ID"), s.text(4));
    }
    if !s.text(3).is_empty() {
        let path = "navigation.courseRhumbline.previousPoint.ID";
        values.text(path, s.text(3));
    }
}

fn nautical_miles_by_km(miles: f64) -> f64 {
    miles / 0.539_956_803 * 1000.0
}

fn route_to_steer(s: &Sentence<'_>, values: &mut Values) {
    if s.is(0, "V") || s.is(1, "V") || (0..5).any(|at| s.text(at).is_empty()) {
        return;
    }
    values.number_if(CROSS_TRACK, cross_track(s, 2));
    let north = |at: usize| if s.is(at, "M") { "Magnetic" } else { "True" };
    let mut bearing = |path: &str, at: usize| {
        let path = format!("{path}{}", north(at + 1));
        values.number_if(&path, s.number(at).map(radians));
    };
    bearing("navigation.courseRhumbline.bearingTrack", 7);
    bearing("navigation.courseRhumbline.bearingOriginToDestination", 7);
    bearing("navigation.courseRhumbline.bearingToDestination", 10);
    bearing("navigation.courseRhumbline.nextPoint.bearing", 10);
    values.text("navigation.courseRhumbline.nextPoint.ID", s.text(9));
    let path = format!("steering.autopilot.target.heading{}", north(13));
    values.number_if(&path, s.number(12).map(radians));
    for (path, at, message) in [
        ("arrivalCircleEntered", 5, "WP arrival circle entered!"),
        ("perpendicularPassed", 6, "Perpendicular passed!"),
    ] {
        let json = match s.is(at, "A") {
            true => {
                format!(r#"{{"method":["sound","visual"],"state":"alarm","message":"{message}"}}"#)
            }
            false => "null".to_owned(),
        };
        values.json(&format!("notifications.{path}"), &json);
    }
}
