//! `towline top`: how the running links of this user are, drawn anew every second.
//!
//! This file asks the links' sockets and owns the terminal. `state` keeps what they told, `view` puts it into words,
//! `draw` gives these their places.

mod draw;
mod state;
mod view;

#[cfg(test)]
mod pictures;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use self::draw::Look;
use self::state::{Answer, Press, State};
use super::link::control;
use super::link::show::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::units::parse_duration;

/// Columns of a frame where no terminal says how many it has.
const WIDTH: u16 = 80;
/// A faster look shows nothing more: links count once a second.
const SHORTEST: Duration = Duration::from_millis(100);

/// Arguments of `towline top`.
#[derive(clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    which: ShowArgs,
    /// How often the links are asked
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// One frame as plain text, then the end; so too where stdout is no terminal
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    match interval >= SHORTEST {
        true => Ok(interval),
        false => Err(format!("`{text}` is too short; the least is 100ms")),
    }
}

impl TopArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match (printer.prints_records(), self.once) {
            (true, true) => self.one_record_each(printer).await,
            (true, false) => self.records(printer).await,
            (false, false) if io::stdout().is_terminal() => self.live().await,
            (false, _) => self.one_frame(printer).await,
        }
    }

    /// A link that is named is waited for; those that are not named are looked for each time.
    fn paths(&self) -> Vec<PathBuf> {
        self.which.paths().unwrap_or_default()
    }

    async fn one_record_each(self, printer: Printer) -> Result<Exit, Failure> {
        let mut reports = Vec::new();
        for (_, answer) in ask_at_least_one(self.which.paths()?).await? {
            reports.extend(answer.ok());
        }
        for report in &reports {
            printer.record(report);
        }
        Ok(exit_of(&reports))
    }

    async fn records(self, printer: Printer) -> Result<Exit, Failure> {
        let mut interrupt = Interrupt::install(printer);
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut gone = BTreeSet::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = interrupt.wait() => return Ok(Exit::Interrupted),
            }
            for (path, answer) in ask_all(self.paths()).await {
                match answer {
                    Ok(report) if report.is_null() => {}
                    Ok(report) => {
                        gone.remove(&path);
                        let mut out = io::stdout().lock();
                        if writeln!(out, "{report}")
                            .and_then(|()| out.flush())
                            .is_err()
                        {
                            // The reader had enough.
                            return Ok(Exit::Ok);
                        }
                    }
                    Err(why) => {
                        if gone.insert(path) {
                            printer.note(format_args!("towline: {why}"));
                        }
                    }
                }
            }
        }
    }

    /// Rates need two looks.
    async fn one_frame(self, printer: Printer) -> Result<Exit, Failure> {
        let paths = self.which.paths()?;
        let mut state = State::new(self.interval);
        let started = Instant::now();
        state.take(Duration::ZERO, ask_at_least_one(paths.clone()).await?);
        tokio::time::sleep(self.interval).await;
        let answers = ask_all(paths).await;
        state.take(started.elapsed(), answers);
        let width = match io::stdout().is_terminal() {
            true => terminal::size().map_or(WIDTH, |(width, _)| width.max(20)),
            false => WIDTH,
        };
        for chosen in 0..state.links.len() {
            state.chosen = chosen;
            for line in frame(&state, width) {
                printer.line(line);
            }
            if chosen + 1 < state.links.len() {
                printer.line("");
            }
        }
        let reports: Vec<Value> = state.links.into_iter().map(|link| link.report).collect();
        Ok(exit_of(&reports))
    }

    async fn live(self) -> Result<Exit, Failure> {
        // Nothing of its own may be written across the screen.
        let mut interrupt = Interrupt::install(Printer::new(false, true, false));
        let interval = self.interval;
        let (tell, mut told) = mpsc::channel(1);
        // A socket that keeps its answer back must not keep the keys waiting.
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut known = BTreeSet::new();
            loop {
                ticks.tick().await;
                known.extend(self.paths());
                let answers = ask_all(known.iter().cloned().collect()).await;
                if tell.send(answers).await.is_err() {
                    return;
                }
            }
        });
        let look = Look {
            colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            keys: true,
        };
        let mut state = State::new(interval);
        let started = Instant::now();
        let mut screen = Screen::open().map_err(no_terminal)?;
        let (tell, mut events) = mpsc::channel(16);
        // It ends with the process: nothing else can end a read of a terminal.
        std::thread::spawn(move || {
            while let Ok(event) = event::read() {
                if tell.blocking_send(event).is_err() {
                    return;
                }
            }
        });
        loop {
            let drawn = screen
                .0
                .draw(|frame| draw::draw(&state, look, frame.area(), frame.buffer_mut()));
            drawn.map_err(no_terminal)?;
            tokio::select! {
                answers = told.recv() => match answers {
                    Some(answers) => state.take(started.elapsed(), answers),
                    None => return Err(Failure::new(Exit::Other, "nobody asks the links any more")),
                },
                event = events.recv() => match event {
                    Some(Event::Key(key)) => match meaning(key) {
                        Some(Meaning::Press(press)) => state.press(press),
                        Some(Meaning::End(exit)) => return Ok(exit),
                        None => {}
                    },
                    // Another size: it is drawn anew.
                    Some(_) => {}
                    // The terminal is gone.
                    None => return Ok(Exit::Interrupted),
                },
                () = interrupt.wait() => return Ok(Exit::Interrupted),
            }
        }
    }
}

fn no_terminal(error: io::Error) -> Failure {
    Failure::new(Exit::Other, format!("the terminal: {error}"))
        .next("`towline top --once` needs none")
}

/// As of `towline link show`: 3 says that a link is down.
fn exit_of(reports: &[Value]) -> Exit {
    match reports.iter().any(|report| report["state"] == "down") {
        true => Exit::Connect,
        false => Exit::Ok,
    }
}

/// A frame as lines of text, as high as it needs.
fn frame(state: &State, width: u16) -> Vec<String> {
    let look = Look {
        colours: false,
        keys: false,
    };
    let area = Rect::new(0, 0, width, draw::height(state, width));
    let mut buffer = Buffer::empty(area);
    draw::draw(state, look, area, &mut buffer);
    draw::lines(&buffer)
}

/// Asks all of them at once, each for as long as its socket is patient.
async fn ask_all(paths: Vec<PathBuf>) -> Vec<Answer> {
    let mut asked = JoinSet::new();
    for path in paths {
        asked.spawn(async move {
            let answer = control::ask(&path).await;
            (path, answer.map_err(|failure| failure.message))
        });
    }
    let mut answers = Vec::new();
    while let Some(answer) = asked.join_next().await {
        answers.extend(answer);
    }
    answers.sort_by(|(one, _), (other, _): &Answer| one.cmp(other));
    answers
}

/// The same; where none answers, there is nothing to show.
async fn ask_at_least_one(paths: Vec<PathBuf>) -> Result<Vec<Answer>, Failure> {
    let answers = ask_all(paths).await;
    if answers.iter().any(|(_, answer)| answer.is_ok()) {
        return Ok(answers);
    }
    let whys: Vec<String> = answers
        .into_iter()
        .filter_map(|(_, answer)| answer.err())
        .collect();
    Err(Failure::new(Exit::Connect, whys.join("\n"))
        .next("start it with `towline link run FILE.toml`, as the same user"))
}

/// The terminal while it is ours. A panic gives it back as well.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                // Half of it may have been done.
                let _ = ratatui::try_restore();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has closed needs nothing.
        let _ = ratatui::try_restore();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Press(Press),
    End(Exit),
}

fn meaning(key: KeyEvent) -> Option<Meaning> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if is_control => Meaning::End(Exit::Interrupted),
        KeyCode::Char('q' | 'Q') => Meaning::End(Exit::Ok),
        KeyCode::Tab | KeyCode::Right => Meaning::Press(Press::Next),
        KeyCode::BackTab | KeyCode::Left => Meaning::Press(Press::Previous),
        KeyCode::Down => Meaning::Press(Press::Down),
        KeyCode::Up => Meaning::Press(Press::Up),
        KeyCode::PageDown => Meaning::Press(Press::PageDown),
        KeyCode::PageUp => Meaning::Press(Press::PageUp),
        _ => return None,
    })
}
