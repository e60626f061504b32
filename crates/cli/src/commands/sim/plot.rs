//! What is drawn of a run: lines over time for every flow and the bottleneck, Jain's index where
//! flows share it, and how round trips are distributed. `chart` does the drawing.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use towline_lab::scenario::{Flow, FlowOutcome, Outcome, Scenario, Traffic, jain};

use crate::chart::{self, Axis, Chart, Line, Panel, Series};
use crate::exit::{Exit, Failure};

/// Flows with a colour of their own; of more, each group shares one.
const MOST_COLOURED: usize = 7;

/// What is drawn of a flow, or of a whole run.
type FlowPoints<'p> = &'p dyn Fn(&Flow, &FlowOutcome) -> Vec<(f64, f64)>;
type RunPoints<'p> = &'p dyn Fn(&Scenario, &Outcome) -> Vec<(f64, f64)>;

/// Where plots go.
pub(super) struct Target {
    paths: Vec<PathBuf>,
}

impl Target {
    /// One file, or a folder with a file for each of `stems`.
    pub(super) fn new(path: PathBuf, stems: &[&str]) -> Result<Self, Failure> {
        if path.extension().is_some_and(|extension| extension == "svg") {
            return match stems.len() {
                1 => Ok(Self { paths: vec![path] }),
                count => Err(Failure::usage(format!(
                    "--svg {}: one file for {count} scenarios",
                    path.display()
                ))
                .next("name a folder")),
            };
        }
        fs::create_dir_all(&path).map_err(|error| cannot_write(&path, &error))?;
        let mut paths: Vec<PathBuf> = Vec::new();
        for stem in stems {
            let names = (1..).map(|number| match number {
                1 => format!("{stem}.svg"),
                _ => format!("{stem}-{number}.svg"),
            });
            paths.extend(
                names
                    .map(|name| path.join(name))
                    .find(|path| !paths.contains(path)),
            );
        }
        Ok(Self { paths })
    }

    /// Writes the plot of scenario number `place`.
    pub(super) fn save(&self, place: usize, chart: &Chart) -> Result<&Path, Failure> {
        let Some(path) = self.paths.get(place) else {
            return Err(Failure::new(Exit::Other, "there is no place for the plot"));
        };
        let text = chart::svg(chart)
            .map_err(|error| Failure::new(Exit::Other, format!("the plot failed: {error}")))?;
        fs::write(path, text).map_err(|error| cannot_write(path, &error))?;
        Ok(path)
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Other, format!("{}: {error}", path.display()))
        .next("name a place that can be written to with --svg")
}

/// A scenario's bottleneck in a few words.
pub(super) fn path(scenario: &Scenario) -> String {
    let mut link = scenario.forward.clone();
    let steps = link.schedule.as_ref().map_or(0, |s| s.steps().count());
    let mut head = String::new();
    if steps > 4 {
        // A trace has thousands.
        link.schedule = None;
        head = format!("a rate of {steps} steps,");
    }
    format!("{head}{link}").replace(',', ", ")
}

/// One run: a line for each flow.
pub(super) fn of_run(scenario: &Scenario, outcome: &Outcome, groups: &[usize]) -> Chart {
    let flows: Vec<(&Flow, &FlowOutcome)> = scenario.flows.iter().zip(&outcome.flows).collect();
    let by_group = flows.len() > MOST_COLOURED;
    // The series of each flow, and their names.
    let series_of = |index: usize| match by_group {
        true => groups.get(index).copied().unwrap_or(index),
        false => index,
    };
    let mut series: Vec<Series> = Vec::new();
    for (index, (flow, _)) in flows.iter().enumerate() {
        let number = series_of(index);
        if number == series.len() {
            let count = (0..flows.len()).filter(|i| series_of(*i) == number).count();
            let name = match count {
                1 => flow.name.clone(),
                _ => format!("{} × {count}", flow.name.trim_end_matches(" 1")),
            };
            series.push(Series {
                name,
                faint: count > 1,
            });
        }
    }
    let lines = |points: FlowPoints<'_>| -> Vec<Line> {
        flows
            .iter()
            .enumerate()
            .map(|(index, (flow, seen))| Line {
                series: Some(series_of(index)),
                points: points(flow, seen),
            })
            .filter(|line| !line.points.is_empty())
            .collect()
    };
    let every = window(scenario, outcome);
    let mut rates = vec![capacity(outcome)];
    rates.extend(lines(&|flow, seen| rate(flow, seen, every)));
    let fairness = jain_over_time(scenario, outcome);
    let mut panels = vec![
        over_time("goodput and the bottleneck's rate", "Mbit/s", rates),
        over_time("congestion window", "kB", lines(&window_size)),
        over_time("round trip", "ms", lines(&round_trip)),
        over_time(
            "wait in the bottleneck's queue",
            "ms",
            vec![Line {
                series: None,
                points: queue(outcome),
            }],
        ),
    ];
    if !fairness.is_empty() {
        panels.push(over_time(
            "Jain's index of the bulk flows, 1 s windows",
            "",
            vec![Line {
                series: None,
                points: fairness,
            }],
        ));
    }
    panels.push(distribution(lines(&|flow, seen| {
        cumulative(round_trip(flow, seen))
    })));
    finished(scenario, outcome, series, panels)
}

/// A controller's name, and what it did.
pub(super) type Compared<'r> = (&'r str, &'r Scenario, &'r Outcome);

/// The same scenario under several controllers, `first` among them: a line for each.
pub(super) fn of_comparison(
    first: &Compared<'_>,
    runs: &[Compared<'_>],
    is_open: impl Fn(usize) -> bool,
) -> Chart {
    let series = runs.iter().map(|(name, _, _)| Series {
        name: (*name).to_owned(),
        faint: false,
    });
    let series: Vec<Series> = series.collect();
    let (_, scenario, outcome) = first;
    let lines = |points: RunPoints<'_>| -> Vec<Line> {
        runs.iter()
            .enumerate()
            .map(|(index, (_, scenario, outcome))| Line {
                series: Some(index),
                points: points(scenario, outcome),
            })
            .filter(|line| !line.points.is_empty())
            .collect()
    };
    // The flows that have the controller, each with its points, taken together.
    let merged = |scenario: &Scenario, outcome: &Outcome, points: FlowPoints<'_>, mean: bool| {
        let flows = scenario.flows.iter().zip(&outcome.flows).enumerate();
        let parts: Vec<_> = flows
            .filter(|(index, _)| is_open(*index))
            .map(|(_, (flow, seen))| points(flow, seen))
            .collect();
        together(&parts, mean)
    };
    let has_pings = scenario.flows.iter().any(is_ping);
    let round_trips = |scenario: &Scenario, outcome: &Outcome| -> Vec<(f64, f64)> {
        let flows = scenario.flows.iter().zip(&outcome.flows).enumerate();
        let chosen = flows.filter(|(index, (flow, _))| match has_pings {
            true => is_ping(flow),
            false => is_open(*index),
        });
        chosen
            .flat_map(|(_, (flow, seen))| round_trip(flow, seen))
            .collect()
    };
    let mut rates = vec![capacity(outcome)];
    rates.extend(lines(&|scenario, outcome| {
        let every = window(scenario, outcome);
        merged(scenario, outcome, &|f, s| rate(f, s, every), false)
    }));
    let mut panels = vec![
        over_time(
            "goodput together and the bottleneck's rate",
            "Mbit/s",
            rates,
        ),
        over_time(
            "congestion windows together",
            "kB",
            lines(&|scenario, outcome| merged(scenario, outcome, &window_size, false)),
        ),
        over_time(
            "mean round trip of the flows",
            "ms",
            lines(&|scenario, outcome| merged(scenario, outcome, &round_trip, true)),
        ),
        over_time(
            "wait in the bottleneck's queue",
            "ms",
            lines(&|_, outcome| queue(outcome)),
        ),
    ];
    let fairness = lines(&jain_over_time);
    if !fairness.is_empty() {
        panels.push(over_time(
            "Jain's index of the bulk flows, 1 s windows",
            "",
            fairness,
        ));
    }
    let mut cdf = distribution(lines(&|scenario, outcome| {
        cumulative(round_trips(scenario, outcome))
    }));
    if has_pings {
        cdf.title = "share of pings answered within a time".to_owned();
    }
    panels.push(cdf);
    finished(scenario, outcome, series, panels)
}

fn finished(
    scenario: &Scenario,
    outcome: &Outcome,
    series: Vec<Series>,
    panels: Vec<Panel>,
) -> Chart {
    Chart {
        title: scenario.name.clone(),
        subtitle: format!("{}; seed {}", path(scenario), scenario.seed),
        seconds: outcome.duration.as_secs_f64(),
        series,
        panels: panels
            .into_iter()
            .filter(|panel| panel.lines.iter().any(|line| !line.points.is_empty()))
            .collect(),
    }
}

fn over_time(title: &str, unit: &str, lines: Vec<Line>) -> Panel {
    Panel {
        title: title.to_owned(),
        unit: unit.to_owned(),
        axis: Axis::Time,
        lines,
    }
}

fn distribution(lines: Vec<Line>) -> Panel {
    Panel {
        title: "share of round trips that took no longer".to_owned(),
        unit: String::new(),
        axis: Axis::Value("ms"),
        lines,
    }
}

fn is_ping(flow: &Flow) -> bool {
    matches!(flow.traffic, Traffic::Ping { .. })
}

fn is_engine(flow: &Flow) -> bool {
    flow.traffic.is_engine()
}

/// What a point of a rate averages over.
fn window(scenario: &Scenario, outcome: &Outcome) -> Duration {
    let shortest = scenario.sample_every;
    (outcome.duration / 120).clamp(shortest, shortest.max(Duration::from_secs(1)))
}

fn is_active(flow: &Flow, at: Duration) -> bool {
    flow.active.contains(&at)
}

fn rate(flow: &Flow, seen: &FlowOutcome, every: Duration) -> Vec<(f64, f64)> {
    if is_ping(flow) {
        return Vec::new();
    }
    let mut points = Vec::new();
    let mut before = (Duration::ZERO, 0);
    for sample in &seen.samples {
        let passed = sample.at.saturating_sub(before.0);
        if passed >= every {
            let bits = (sample.delivered - before.1) as f64 * 8.0;
            if is_active(flow, sample.at) || bits > 0.0 {
                let middle = before.0 + passed / 2;
                points.push((middle.as_secs_f64(), bits / passed.as_secs_f64() / 1e6));
            }
            before = (sample.at, sample.delivered);
        }
    }
    points
}

fn window_size(flow: &Flow, seen: &FlowOutcome) -> Vec<(f64, f64)> {
    let samples = seen.samples.iter();
    samples
        .filter(|s| is_engine(flow) && is_active(flow, s.at) && s.cwnd > 0)
        .map(|s| (s.at.as_secs_f64(), s.cwnd as f64 / 1e3))
        .collect()
}

fn round_trip(flow: &Flow, seen: &FlowOutcome) -> Vec<(f64, f64)> {
    if is_ping(flow) {
        let times = seen.pings.iter();
        return times
            .filter_map(|(at, rtt)| Some((at.as_secs_f64(), (*rtt)?.as_secs_f64() * 1e3)))
            .collect();
    }
    let samples = seen.samples.iter();
    samples
        .filter(|s| is_active(flow, s.at) && !s.latest_rtt.is_zero())
        .map(|s| (s.at.as_secs_f64(), s.latest_rtt.as_secs_f64() * 1e3))
        .collect()
}

fn queue(outcome: &Outcome) -> Vec<(f64, f64)> {
    let samples = outcome.bottleneck.iter();
    samples
        .map(|s| (s.at.as_secs_f64(), s.delay.as_secs_f64() * 1e3))
        .collect()
}

fn capacity(outcome: &Outcome) -> Line {
    let samples = outcome.bottleneck.iter();
    Line {
        series: None,
        points: samples
            .filter_map(|s| Some((s.at.as_secs_f64(), s.rate? as f64 / 1e6)))
            .collect(),
    }
}

/// Jain's index in each second in which two bulk flows or more are active throughout.
fn jain_over_time(scenario: &Scenario, outcome: &Outcome) -> Vec<(f64, f64)> {
    let second = Duration::from_secs(1);
    let equals: Vec<(&Flow, &FlowOutcome)> = scenario
        .flows
        .iter()
        .zip(&outcome.flows)
        .filter(|(flow, _)| flow.traffic == Traffic::Bulk && !flow.reverse)
        .collect();
    (0..outcome.duration.as_secs() as u32)
        .filter_map(|number| {
            let span: Range<Duration> = second * number..second * (number + 1);
            let rates: Vec<f64> = equals
                .iter()
                .filter(|(flow, _)| flow.active.start <= span.start && flow.active.end >= span.end)
                .map(|(_, seen)| seen.goodput(span.clone()))
                .collect();
            let middle = f64::from(number) + 0.5;
            (rates.len() > 1 && rates.iter().any(|rate| *rate > 0.0))
                .then(|| (middle, jain(&rates)))
        })
        .collect()
}

/// Points of several flows at the same times, added up or averaged.
fn together(parts: &[Vec<(f64, f64)>], mean: bool) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = parts.iter().flatten().copied().collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let same = |a: &(f64, f64), b: &(f64, f64)| a.0 == b.0;
    all.chunk_by(same)
        .map(|points| {
            let sum: f64 = points.iter().map(|point| point.1).sum();
            let divisor = if mean { points.len() as f64 } else { 1.0 };
            (points[0].0, sum / divisor)
        })
        .collect()
}

/// The values of points as a distribution: value, and the share that is not above it.
fn cumulative(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut values: Vec<f64> = points.into_iter().map(|point| point.1).collect();
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let ranked = values.into_iter().enumerate();
    ranked
        .map(|(rank, value)| (value, (rank + 1) as f64 / count))
        .collect()
}
