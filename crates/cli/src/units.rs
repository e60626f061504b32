//! Sizes, rates and durations as people write and read them.
//!
//! `k M G T` are powers of 1000, `Ki Mi Gi Ti` of 1024, an appended `B` is allowed. Rates
//! are bytes per second; `bit` at the end makes them bits per second.

use std::fmt;
use std::time::Duration;

use towline::config::UnixTime;
use towline::identity::Day;

/// Reads a size in bytes, such as `10M`, `4MiB` or `1500`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = parse_scaled(text, "B")
        .ok_or_else(|| format!("`{text}` is not a size; write 1500, 64k, 10M or 1GiB"))?;
    Ok(bytes)
}

/// Reads a rate in bytes per second, such as `2M` (bytes) or `16Mbit` (bits).
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    let body = text.strip_suffix("/s").unwrap_or(text);
    let rate = match body.strip_suffix("bit") {
        Some(bits) => parse_scaled(bits, "").map(|bits| bits / 8),
        None => parse_scaled(body, "B"),
    };
    rate.filter(|rate| *rate > 0).ok_or_else(|| {
        format!("`{text}` is not a rate; write 500k, 2M or 2MiB (bytes a second) or 16Mbit")
    })
}

fn parse_scaled(text: &str, unit: &str) -> Option<u64> {
    let text = text.strip_suffix(unit).unwrap_or(text);
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let scale: f64 = match &text[digits..] {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" | "ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        _ => return None,
    };
    let value = number * scale;
    (value.is_finite() && value < 4e18).then_some(value as u64)
}

/// Reads a duration: seconds, or with `ms`, `s`, `m` or `h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => 0.0,
    };
    text[..digits]
        .parse::<f64>()
        .ok()
        .filter(|_| unit > 0.0)
        .and_then(|number| Duration::try_from_secs_f64(number * unit).ok())
        .ok_or_else(|| format!("`{text}` is not a duration; write 2, 1.5s, 200ms or 5m"))
}

/// As [`parse_duration`], but never zero.
pub(crate) fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|duration| {
        if duration.is_zero() {
            Err(format!("`{text}` must be more than zero"))
        } else {
            Ok(duration)
        }
    })
}

/// Bytes for people, in powers of 1024.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(
            f,
            self.0 as f64,
            1024.0,
            &["B", "KiB", "MiB", "GiB", "TiB", "PiB"],
        )
    }
}

/// A rate in bytes per second, for people.
pub(crate) struct ByteRate(pub(crate) f64);

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
    }
}

/// A rate given in bytes per second, shown in bits per second.
pub(crate) struct BitRate(pub(crate) f64);

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(
            f,
            self.0 * 8.0,
            1000.0,
            &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
        )
    }
}

fn scaled(f: &mut fmt::Formatter<'_>, value: f64, step: f64, units: &[&str]) -> fmt::Result {
    let (mut value, mut index) = (value, 0);
    while value >= step && index + 1 < units.len() {
        value /= step;
        index += 1;
    }
    let digits = if index == 0 || value >= 100.0 {
        0
    } else {
        2 - usize::from(value >= 10.0)
    };
    write!(f, "{value:.digits$} {}", units[index])
}

/// Milliseconds with three digits, for round-trip times.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// `count` with its noun, in the plural where needed.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// A time for people: day and minute, in UTC.
pub(crate) fn date(time: UnixTime) -> String {
    let minute = time.as_secs() / 60;
    let (hour, minute) = (minute / 60 % 24, minute % 60);
    format!("{} {hour:02}:{minute:02} UTC", Day::of(time))
}

/// Bytes per second, or zero for no time at all.
pub(crate) fn rate(bytes: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        bytes as f64 / seconds
    } else {
        0.0
    }
}

/// Processor time as a share of one core, percent.
pub(crate) fn cpu_percent(cpu: Duration, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        (cpu.as_secs_f64() / seconds * 1000.0).round() / 10.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
