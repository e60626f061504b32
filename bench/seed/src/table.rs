//! The tables, in Markdown: what Freenet published, what was measured here, and the ratio.

use std::fmt::Write as _;

use towline_lab::shapes::RATE_LIMITED;

use crate::measure::{Cold, LONG_RATE, Long, Saturated, Spread, Warm};
use crate::published::{
    ESTABLISH_MS, FOUR_MBIT, HUNDRED_MBIT, MESSAGE_2_MS_MBIT, MESSAGE_MBIT, SATURATION_MBIT,
    WARM_DAYS, WEEK_0, WEEK_0_DAY,
};

/// Connections from nothing, set-up included.
pub(crate) fn cold(all: &[Cold]) -> String {
    let paths = all.first().map_or(&[][..], |cold| &cold.played);
    let names: String = paths
        .iter()
        .map(|(path, _)| format!(" {} |", path.name))
        .collect();
    let mut text = format!(
        "| shape | Freenet {WEEK_0_DAY} | Towline, loopback | Freenet ÷ Towline |{names}\n\
         |---|---|---|---|{}\n",
        "---|".repeat(paths.len())
    );
    for cold in all {
        let id = cold.shape.id;
        let theirs = WEEK_0.iter().find(|(name, _)| *name == id);
        let theirs = theirs.map(|(_, milliseconds)| *milliseconds);
        let ratio = match theirs {
            // Who holds a limit is not to be faster.
            _ if id == RATE_LIMITED => "held to a limit, see below".to_owned(),
            Some(theirs) => times(theirs / (cold.whole.median * 1e3)),
            None => "–".to_owned(),
        };
        let _ = write!(
            text,
            "| `{id}` | {} | {} | {ratio} |",
            theirs.map_or("–".to_owned(), |theirs| format!("{theirs:.0} ms")),
            milliseconds(&cold.whole)
        );
        for (_, played) in &cold.played {
            let _ = write!(text, " {:.2} ms |", played.whole.as_secs_f64() * 1e3);
        }
        text.push('\n');
    }
    text
}

/// The shape that is held to a limit: how near it comes.
pub(crate) fn limit(all: &[Cold]) -> Option<String> {
    let cold = all.iter().find(|cold| cold.shape.id == RATE_LIMITED)?;
    let limit = cold.shape.rate_limit?.get() as f64;
    let exact = cold.shape.total() as f64 / limit;
    let off = |seconds: f64| format!("{:+.1} %", (seconds / exact - 1.0) * 100.0);
    let (_, theirs) = WEEK_0.iter().find(|(name, _)| *name == RATE_LIMITED)?;
    let mut text = format!(
        "| 10^6 bytes held to 3·10^6 B/s | time | beside {:.1} ms |\n|---|---|---|\n\
         | Freenet {WEEK_0_DAY}, set-up included | {theirs:.0} ms | {} |\n",
        exact * 1e3,
        off(theirs / 1e3)
    );
    let _ = writeln!(
        text,
        "| Towline, loopback, after the handshake | {} | {} |",
        milliseconds(&cold.after_handshake),
        off(cold.after_handshake.median)
    );
    for (path, played) in &cold.played {
        let took = played.after_handshake().as_secs_f64();
        let _ = writeln!(
            text,
            "| Towline, {}, after the handshake | {:.1} ms | {} |",
            path.name,
            took * 1e3,
            off(took)
        );
    }
    Some(text)
}

/// Connections that stand: set-up alone, single messages, saturation, four at once.
pub(crate) fn warm(near: &Warm, far: &Warm, saturated: &Saturated) -> String {
    let [one, two] = WARM_DAYS;
    let mut text = format!(
        "| what | Freenet {one} | Freenet {two} | Towline | Towline beside Freenet's better day |\n\
         |---|---|---|---|---|\n"
    );
    let [one, two] = ESTABLISH_MS.map(|ms| format!("{ms:.0} ms"));
    let best = ESTABLISH_MS[0].min(ESTABLISH_MS[1]);
    let _ = writeln!(
        text,
        "| establish, without delay | {one} | {two} | {} | {} |",
        milliseconds(&near.establish),
        times(best / (near.establish.median * 1e3))
    );
    let _ = writeln!(
        text,
        "| establish, 2 ms round trip | – | – | {} | – |",
        milliseconds(&far.establish)
    );
    let rows = [
        (near, MESSAGE_MBIT, "without delay"),
        (far, MESSAGE_2_MS_MBIT, "2 ms round trip"),
    ];
    for (warm, theirs, how) in rows {
        for (index, (size, seconds)) in warm.messages.iter().enumerate() {
            let bits = *size as f64 * 8.0;
            let what = format!("message of {} KiB, {how}", size >> 10);
            let theirs = theirs.map(|day| day.get(index).copied());
            rate(&mut text, &what, theirs, &rate_of(bits, seconds));
        }
    }
    let bits = 100.0 * 1024.0 * 8.0;
    let hundred = rate_of(bits, &near.hundred);
    rate(
        &mut text,
        "100 messages of 1 KiB in turn, without delay",
        HUNDRED_MBIT,
        &hundred,
    );
    let what = "one connection saturated, without delay";
    rate(&mut text, what, SATURATION_MBIT.map(Some), &saturated.one);
    let what = "four connections together, without delay";
    rate(&mut text, what, FOUR_MBIT.map(Some), &saturated.four);
    let share = |one: f64, four: f64| format!("{:.0} %", four / one * 100.0);
    let [first, second] = [0, 1].map(|day| share(SATURATION_MBIT[day], FOUR_MBIT[day]));
    let _ = writeln!(
        text,
        "| four together, as a share of one | {first} | {second} | {} | – |",
        share(saturated.one.median, saturated.four.median)
    );
    text
}

/// Long transfers of production beside the simulator.
pub(crate) fn long(all: &[Long]) -> String {
    let names: Vec<&str> = all
        .first()
        .map(|long| long.played.iter().map(|(name, _)| *name).collect())
        .unwrap_or_default();
    let columns: String = names
        .iter()
        .map(|name| format!(" Towline, {name} |"))
        .collect();
    let mut text = format!(
        "| Freenet, in production | size, round trip | time |{columns} Freenet ÷ {} |\n|---|---|---|{}---|\n",
        names.first().unwrap_or(&"–"),
        "---|".repeat(names.len())
    );
    for long in all {
        let published = long.published;
        let [low, high] = published.seconds;
        let span = match low == high {
            true => format!("{low} s"),
            false => format!("{low}–{high} s"),
        };
        let _ = write!(
            text,
            "| {}: {} | {:.1} MB, {} ms | {span} |",
            published.source,
            published.what,
            published.bytes as f64 / 1e6,
            published.rtt_ms
        );
        for (_, played) in &long.played {
            let _ = write!(text, " {:.2} s |", played.whole.as_secs_f64());
        }
        let ours = long.played.first().map(|(_, played)| played.whole);
        let ratio = ours.map_or("–".to_owned(), |ours| times(low / ours.as_secs_f64()));
        let _ = writeln!(text, " {ratio} |");
    }
    let played = all.iter().flat_map(|long| &long.played);
    let spurious: u64 = played.map(|(_, played)| played.spurious).sum();
    let _ = write!(
        text,
        "\nVirtual time, {} Mbit/s, a buffer of one bandwidth-delay product, handshake included; \
         {spurious} probe timeouts and spurious losses in all of them. The ratio takes Freenet's \
         shortest time.\n",
        LONG_RATE / 1_000_000
    );
    text
}

/// A row of rates in Mbit/s.
fn rate(text: &mut String, what: &str, theirs: [Option<f64>; 2], ours: &Spread) {
    let [one, two] =
        theirs.map(|day| day.map_or("–".to_owned(), |mbit| format!("{mbit:.2} Mbit/s")));
    let best = theirs.into_iter().flatten().reduce(f64::max);
    let ratio = best.map_or("–".to_owned(), |best| times(ours.median / 1e6 / best));
    let [low, median, high] = [ours.low, ours.median, ours.high].map(|bits| bits / 1e6);
    let _ = writeln!(
        text,
        "| {what} | {one} | {two} | {median:.1} Mbit/s ({low:.1}–{high:.1}) | {ratio} |"
    );
}

/// Bits a second, from seconds for so many bits: the slowest is the lowest rate.
fn rate_of(bits: f64, seconds: &Spread) -> Spread {
    Spread {
        low: bits / seconds.high,
        median: bits / seconds.median,
        high: bits / seconds.low,
    }
}

fn milliseconds(spread: &Spread) -> String {
    let [low, median, high] = [spread.low, spread.median, spread.high].map(|s| s * 1e3);
    format!("{median:.2} ms ({low:.2}–{high:.2})")
}

fn times(ratio: f64) -> String {
    match ratio >= 10.0 {
        true => format!("{ratio:.0} ×"),
        false => format!("{ratio:.2} ×"),
    }
}

#[cfg(test)]
mod tests;
