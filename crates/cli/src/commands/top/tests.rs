use std::path::PathBuf;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::Color;
use serde_json::{Value, json};

use super::draw::{self, Look, draw};
use super::state::{Press, State};
use super::{Meaning, frame, meaning};
use crate::exit::Exit;

const SECOND: Duration = Duration::from_secs(1);
const LOOK: Look = Look {
    colours: true,
    keys: true,
};

/// A boat that has run for so many seconds, of which some had a bad sky.
fn boat(at: u64) -> Value {
    let wave = (at as f64 / 9.0).sin();
    let rain = if (60..85).contains(&at) { 1.0 } else { 0.0 };
    json!({
        "schema": "towline.link.show/1",
        "name": "boat-7",
        "role": "boat",
        "state": "live",
        "via": "udp",
        "why": null,
        "quality": 87,
        "bytes_per_record": 6.1 + 0.8 * wave,
        "loss": 0.012 + 0.08 * rain,
        "rtt_ms": 612.0 + 40.0 * wave + 300.0 * rain,
        "rtt_p95_ms": 801.0,
        "month": { "used": 12_582_912 + at * 150, "of": 52_428_800 },
        "backlog": 12,
        "spool_bytes": 3_379_200,
        "in_flight": 2,
        "durable": 120_000 + at * 24,
        "next": 120_012 + at * 24,
        "lost": 0,
        "oldest_unsent_s": 4.2,
        "is_on_hold": false,
        "store": null,
        "refused": 0,
        "records": at * 24,
        "bytes_sent": at * 150 + (540.0 * (1.0 - (at as f64 / 9.0).cos())) as u64,
        "sources": [
            { "kind": "signalk", "is_up": true, "down": null, "records": at * 20, "malformed": 0, "unsupported": 3 },
            { "kind": "nmea0183", "is_up": true, "down": null, "records": at * 4, "malformed": 1, "unsupported": 212 },
        ],
    })
}

fn shore(at: u64) -> Value {
    let sender = |number: u64, via: Option<&str>, is_on_hold: bool| {
        json!({
            "name": format!("boat-{number}"),
            "via": via,
            "rtt_ms": via.map(|_| 580 + 17 * number),
            "records": if via.is_some() { at * number * 3 } else { 1_860 },
            "held": if is_on_hold { 4096 } else { 0 },
            "stale": number / 3,
            "is_on_hold": is_on_hold,
        })
    };
    json!({
        "schema": "towline.link.show/1",
        "name": "office",
        "role": "shore",
        "state": "live",
        "links": 4,
        "records": at * 70 + (300.0 * (1.0 - (at as f64 / 7.0).cos())) as u64,
        "missed": 0,
        "senders": [
            sender(3, Some("udp"), false),
            sender(5, None, false),
            sender(7, Some("udp"), true),
            sender(8, Some("tls"), false),
        ],
        "sinks": [
            { "kind": "postgres", "is_log": true, "records": at * 60, "refused": 0, "trouble": null },
            { "kind": "nats", "is_log": true, "records": 1_800, "refused": 2, "trouble": "no answer from the server for 5 s" },
            { "kind": "signalk", "is_log": false, "records": at * 70, "refused": 0, "trouble": null },
        ],
    })
}

fn with(mut report: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().expect("changes") {
        report[name] = value.clone();
    }
    report
}

fn socket(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/user/1/towline/link-{name}.sock"))
}

fn state() -> State {
    State::new(SECOND)
}

/// What a link tells second by second, as the only one.
fn told(reports: impl IntoIterator<Item = Value>) -> State {
    let mut state = state();
    for (now, report) in (1..).zip(reports) {
        state.take(SECOND * now, vec![(socket("x"), Ok(report))]);
    }
    state
}

pub(super) fn two_minutes_of_a_boat() -> State {
    told((0..125).map(boat))
}

pub(super) fn two_minutes_of_a_shore() -> State {
    told((0..125).map(shore))
}

fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal
        .draw(|frame| draw(state, LOOK, frame.area(), frame.buffer_mut()))
        .expect("it is drawn");
    draw::lines(terminal.backend().buffer())
}

#[track_caller]
fn expect(lines: &[String], words: &[&str]) {
    for word in words {
        let is_there = lines.iter().any(|line| line.contains(word));
        assert!(is_there, "no `{word}` in\n{}", lines.join("\n"));
    }
}

#[track_caller]
fn expect_not(lines: &[String], words: &[&str]) {
    for word in words {
        let is_there = lines.iter().any(|line| line.contains(word));
        assert!(!is_there, "`{word}` in\n{}", lines.join("\n"));
    }
}

#[test]
fn a_live_boat_fits_80_columns_and_24_lines() {
    let lines = screen(&two_minutes_of_a_boat(), 80, 24);
    expect(
        &lines,
        &[
            "boat-7  LIVE UDP",
            "quality  87 ██████████░",
            "─ sent ",
            "─ B/delta ",
            "─ round trip ",
            "(p95 801 ms)",
            "─ loss 1.2 % ",
            "most 9.2 %",
            " spool    12 records wait, the oldest for 4.2 s; 3.22 MiB stored",
            " durable  122976 of 122988 records; 2 batches in flight",
            " month    12.0 MiB of 50.0 MiB, 24.0 %  █████░░░",
            "source    state  records/s  records  malformed  unsupported",
            "signalk   up          20.0     2480          0            3",
            "nmea0183  up           4.0      496          1          212",
            "q quits",
        ],
    );
    expect_not(&lines, &["ON HOLD", "LOST", "SPOOL"]);
    // Both rows of charts, and none of them wider than its place.
    assert!(lines.iter().filter(|line| line.contains('▇')).count() >= 2);
}

#[test]
fn a_boat_that_is_down_says_why() {
    let down = |at| {
        with(
            boat(at),
            json!({
                "state": "down", "via": null, "quality": 0, "backlog": 1_234, "oldest_unsent_s": 754.0,
                "why": "no answer from shore.example:4433 for 30 s, neither over UDP nor over TLS",
                "is_on_hold": true, "store": "no space is left on the device", "lost": 7,
                "sources": [{ "kind": "signalk", "is_up": false, "down": "connection refused", "records": 0 }],
            }),
        )
    };
    let lines = screen(&told((0..5).map(down)), 80, 24);
    expect(
        &lines,
        &[
            "boat-7  DOWN: no answer from shore.example:4433",
            "neither over UDP nor over TLS",
            "quality   0 ░░░",
            "1234 records wait, the oldest for 13 min",
            "7 LOST",
            "ON HOLD: the other end's log takes nothing",
            "SPOOL: no space is left on the device",
            "source signalk is down: connection refused",
            "signalk  DOWN",
            // What its last connection had is no round trip of now.
            "─ round trip - ─",
            "─ loss - ─",
        ],
    );
}

#[test]
fn a_shore_shows_its_senders_and_sinks() {
    let lines = screen(&two_minutes_of_a_shore(), 80, 24);
    expect(
        &lines,
        &[
            "office  LISTENS  4 links",
            "sink nats: no answer from the server for 5 s",
            "ON HOLD: 1 sender keeps what a log does not take",
            "─ records ",
            "─ 4 senders ─",
            "boat-3  UDP         9.0     1116      631 ms     0      1",
            "boat-5  gone        0.0     1860           -     0      1",
            "boat-7  UDP        21.0     2604      699 ms  4096      2  ON HOLD",
            "boat-8  TLS ",
            "postgres  log        60.0     7440        0  ok",
            "nats      log         0.0     1800        2  TROUBLE",
            "signalk   live       70.0     8680        0  ok",
            "↑ ↓ more senders",
        ],
    );
}

#[test]
fn more_senders_than_lines_are_told_and_scrolled() {
    let fleet = |at: u64| {
        let sender = |number: u64| json!({ "name": format!("boat-{number:03}"), "via": "udp", "records": at, "held": 0, "stale": 0 });
        let senders: Vec<Value> = (0..200).map(sender).collect();
        with(shore(at), json!({ "senders": senders }))
    };
    let mut state = told((0..3).map(fleet));
    let lines = screen(&state, 80, 24);
    expect(
        &lines,
        &[
            "boat-000",
            "200 senders",
            "… 187 more",
            "postgres",
            "TROUBLE",
        ],
    );
    for _ in 0..20 {
        state.press(Press::PageDown);
    }
    expect(&screen(&state, 80, 24), &["boat-199"]);
    state.press(Press::PageUp);
    state.press(Press::Down);
    state.press(Press::Up);
    expect(&screen(&state, 80, 24), &["boat-189", "boat-199"]);
    // Frames that nobody can scroll have all of them.
    state.scroll = 0;
    expect(&frame(&state, 80), &["boat-000", "boat-199", "postgres"]);
}

#[test]
fn what_was_not_measured_is_absent() {
    let young = json!({
        "name": "boat-7", "role": "boat", "state": "connecting", "quality": null, "loss": null, "rtt_ms": null,
        "bytes_per_record": null, "month": { "used": null, "of": null },
        "sources": [{ "kind": "signalk" }],
    });
    let lines = screen(&told([young]), 80, 24);
    expect(
        &lines,
        &[
            "CONNECTING",
            "quality   -",
            "─ sent - ─",
            "─ B/delta - ─",
            "─ round trip - ─",
            "─ loss - ─",
            " spool    -",
            " month    -",
            " signalk  -              -        -          -            -",
        ],
    );
    expect_not(&lines, &["most", "▁", "0.0", "null"]);
    expect(
        &screen(&told([Value::Null]), 80, 24),
        &["x  has told nothing yet"],
    );
}

#[test]
fn a_zero_is_drawn_and_a_gap_is_not() {
    let idle = |at: u64| with(boat(at), json!({ "bytes_sent": 100, "loss": 0.0 }));
    let lines = screen(&told((0..60).map(idle)), 80, 24);
    expect(
        &lines,
        &["─ sent 0 B/s ", "─ loss 0.0 % ", "most 0.0 %", "▁▁▁▁▁"],
    );
    expect_not(&lines, &["▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁"]);
}

#[test]
fn a_link_that_starts_again_has_no_negative_rate() {
    let sent =
        |bytes: u64| json!({ "name": "b", "role": "boat", "state": "live", "bytes_sent": bytes });
    let rates: Vec<Option<f64>> = (1..=6)
        .map(|count| {
            let state = told(
                [1_000, 2_000, 3_500, 10, 110, 210]
                    .map(sent)
                    .into_iter()
                    .take(count),
            );
            state.links[0].rate("bytes_sent")
        })
        .collect();
    assert_eq!(
        rates,
        [
            None,
            Some(1_000.0),
            Some(1_250.0),
            None,
            Some(100.0),
            Some(100.0)
        ]
    );
}

#[test]
fn a_report_that_comes_twice_makes_no_spike() {
    // Every second is counted once, and asked at odd moments.
    let state =
        told([0, 100, 100, 300, 400].map(
            |bytes| json!({ "name": "b", "role": "boat", "state": "live", "bytes_sent": bytes }),
        ));
    assert_eq!(state.links[0].rate("bytes_sent"), Some(100.0));
}

#[test]
fn charts_have_means_and_gaps() {
    let mut state = State::new(SECOND * 2);
    for at in (0..=120_u32).step_by(2) {
        let loss = if (40..60).contains(&at) {
            Value::Null
        } else {
            json!(f64::from(at % 4))
        };
        let report = json!({ "name": "b", "role": "boat", "state": "live", "loss": loss });
        state.take(SECOND * at, vec![(socket("x"), Ok(report))]);
    }
    let chart = &state.links[0].loss;
    let columns = chart.columns(state.now, 30);
    assert_eq!(columns.len(), 30);
    assert_eq!(columns[0], Some(1.0));
    // 120 s is in the last column; 40 s to 60 s are five of four seconds.
    assert_eq!(columns.iter().filter(|value| value.is_none()).count(), 5);
    // Narrower than the interval: what is known holds.
    let columns = chart.columns(state.now, 240);
    let absent = columns.iter().filter(|value| value.is_none()).count();
    assert!((38..=44).contains(&absent), "{absent}");
    assert!(chart.columns(state.now, 0).is_empty());
}

#[test]
fn links_that_end_stay_as_gone_and_new_ones_come() {
    let mut state = state();
    assert_eq!(screen(&state, 80, 24)[0], "");
    state.take(SECOND, Vec::new());
    expect(&screen(&state, 80, 24), &["no link of this user runs"]);
    state.take(SECOND * 2, vec![(socket("boat-7"), Ok(boat(1)))]);
    expect_not(&screen(&state, 80, 24), &["[boat-7]", "another link"]);
    let refused = || Err("connection refused".to_owned());
    state.take(
        SECOND * 3,
        vec![
            (socket("boat-7"), refused()),
            (socket("office"), Ok(shore(1))),
        ],
    );
    state.take(
        SECOND * 8,
        vec![
            (socket("boat-7"), refused()),
            (socket("office"), Ok(shore(2))),
        ],
    );
    let lines = screen(&state, 80, 24);
    expect(
        &lines,
        &[
            "[boat-7 (gone)] office",
            "boat-7  GONE for 5.0 s",
            "below is what it told last",
            "connection refused",
            "signalk   up             -       20",
            "another link",
        ],
    );
    state.press(Press::Next);
    expect(
        &screen(&state, 80, 24),
        &["boat-7 (gone) [office]", "office  LISTENS"],
    );
    state.press(Press::Next);
    state.press(Press::Previous);
    assert_eq!(state.chosen, 1);
    state.take(SECOND * 9, vec![(socket("boat-7"), Ok(boat(2)))]);
    state.press(Press::Previous);
    expect(&screen(&state, 80, 24), &["[boat-7] office", "LIVE UDP"]);
}

#[test]
fn the_chosen_tab_is_always_seen() {
    let mut state = state();
    let name = |at: u32| format!("a-rather-long-name-{at:02}");
    let answers = (0..30).map(|at| (socket(&name(at)), Ok(Value::Null)));
    state.take(SECOND, answers.collect());
    for at in 0..30 {
        let tabs = &screen(&state, 60, 10)[0];
        assert!(tabs.contains(&format!("[{}]", name(at))), "{tabs}");
        state.press(Press::Next);
    }
}

#[test]
fn screens_of_any_size_are_drawn() {
    let mut many = two_minutes_of_a_boat();
    many.take(
        SECOND * 200,
        vec![
            (socket("x"), Err("gone ".repeat(60))),
            (socket("y"), Ok(shore(1))),
            (
                socket("z"),
                Ok(json!({ "role": "shore", "senders": 3, "sinks": {} })),
            ),
            (socket("w"), Ok(json!([1, 2]))),
        ],
    );
    let mut empty = state();
    empty.take(SECOND, Vec::new());
    for state in [
        two_minutes_of_a_boat(),
        two_minutes_of_a_shore(),
        state(),
        empty,
    ] {
        every_size(&state);
    }
    for chosen in 0..4 {
        many.chosen = chosen;
        every_size(&many);
    }
}

fn every_size(state: &State) {
    let sizes = (0..30).flat_map(|width| (0..30).map(move |height| (width, height)));
    for (width, height) in sizes.chain([(200, 3), (3, 200), (300, 100), (80, 1), (1, 1)]) {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(state, LOOK, area, &mut buffer);
        if width > 0 {
            let _ = frame(state, width);
        }
    }
}

#[test]
fn a_tiny_screen_still_says_how_it_is() {
    let lines = screen(&two_minutes_of_a_boat(), 30, 6);
    expect(&lines, &["boat-7  LIVE UDP", "spool    12 records wait"]);
    let lines = screen(&two_minutes_of_a_boat(), 17, 1);
    assert_eq!(lines, [" boat-7  LIVE UDP"]);
}

#[test]
fn names_cannot_write_to_the_terminal() {
    let report = |at| {
        with(
            shore(at),
            json!({ "senders": [{ "name": "\u{1b}[2Jboat\r\n\u{7}東京", "via": "u\u{9b}dp", "records": at }] }),
        )
    };
    let mut state = told((0..3).map(report));
    for line in screen(&state, 80, 24).into_iter().chain(frame(&state, 80)) {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    expect(&frame(&state, 80), &["東京"]);
    state.take(
        SECOND * 9,
        vec![(socket("x"), Err("\u{1b}[31mno".to_owned()))],
    );
    for line in screen(&state, 80, 24) {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn without_colours_nothing_has_one() {
    let area = Rect::new(0, 0, 80, 24);
    let look = Look {
        colours: false,
        keys: true,
    };
    for (state, look, has_some) in [
        (two_minutes_of_a_shore(), look, false),
        (two_minutes_of_a_boat(), look, false),
        (two_minutes_of_a_boat(), LOOK, true),
    ] {
        let mut buffer = Buffer::empty(area);
        draw(&state, look, area, &mut buffer);
        let mut cells = buffer.content().iter();
        assert_eq!(cells.any(|cell| cell.fg != Color::Reset), has_some);
    }
}

#[test]
fn keys_mean_what_the_last_line_says() {
    let key = |code, modifiers| meaning(KeyEvent::new(code, modifiers));
    let plain = |code| key(code, KeyModifiers::NONE);
    assert_eq!(plain(KeyCode::Char('q')), Some(Meaning::End(Exit::Ok)));
    assert_eq!(
        key(KeyCode::Char('c'), KeyModifiers::CONTROL),
        Some(Meaning::End(Exit::Interrupted))
    );
    assert_eq!(plain(KeyCode::Char('c')), None);
    assert_eq!(plain(KeyCode::Tab), Some(Meaning::Press(Press::Next)));
    assert_eq!(plain(KeyCode::Right), plain(KeyCode::Tab));
    assert_eq!(plain(KeyCode::BackTab), plain(KeyCode::Left));
}
