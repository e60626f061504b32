//! The machine, the day and the commit; and whether others use the machine too.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::utsname::uname;

use crate::process::children;

/// Load above which a run is warned of.
const QUIET_LOAD: f64 = 1.5;
/// Share of the processors that others may use before a run begins.
const QUIET_SHARE: f64 = 0.05;
/// How long to wait for that.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(2);

/// What the page of evidence says of where and when.
pub struct Machine {
    /// The day, UTC, as in file names.
    pub date: String,
    lines: Vec<(&'static str, String)>,
    /// Busy and whole processor time of the machine, and what our children had spent.
    begin: Option<Clock>,
}

#[derive(Clone, Copy)]
struct Clock {
    busy: f64,
    all: f64,
    ours: f64,
}

impl Clock {
    fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let fields: Vec<f64> = stat
            .lines()
            .next()?
            .split_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal
        let all: f64 = fields.iter().take(8).sum();
        let idle = fields.get(3)? + fields.get(4)?;
        let usage = children().ok()?;
        Some(Self {
            busy: all - idle,
            all,
            ours: usage.user + usage.system,
        })
    }

    /// The share of all processors that others used since `then`.
    fn others_since(&self, then: &Self) -> f64 {
        /// Units of `/proc/stat` a second.
        const TICKS: f64 = 100.0;
        let busy = (self.busy - then.busy) / TICKS - (self.ours - then.ours);
        (busy / ((self.all - then.all) / TICKS).max(f64::MIN_POSITIVE)).max(0.0)
    }
}

impl Machine {
    /// The day, the commit, then `lines` of the comparison's own, then the machine.
    pub fn describe(root: &Path, lines: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let today = time::OffsetDateTime::now_utc().date();
        let date = format!(
            "{}-{:02}-{:02}",
            today.year(),
            u8::from(today.month()),
            today.day()
        );
        let system = uname().map_or("unknown".to_owned(), |system| {
            let part = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
            format!(
                "{} {} {}",
                part(system.sysname()),
                part(system.release()),
                part(system.machine())
            )
        });
        let processor = field("/proc/cpuinfo", "model name").unwrap_or("unknown".to_owned());
        let count = std::thread::available_parallelism().map_or(0, usize::from);
        let mut all = vec![("date", date.clone()), ("commit", commit(root))];
        all.extend(lines);
        all.extend([
            ("system", system),
            ("processor", format!("{processor}, {count} cores")),
            (
                "memory",
                field("/proc/meminfo", "MemTotal").unwrap_or("unknown".to_owned()),
            ),
            ("rustc", said("rustc", &["-V"])),
        ]);
        Self {
            date,
            lines: all,
            begin: None,
        }
    }

    /// Waits until what was built is out of the way; says so if others keep the machine busy.
    pub fn settle(&mut self) {
        let mut waited = Duration::ZERO;
        let mut share = 1.0;
        while share > QUIET_SHARE && waited < PATIENCE {
            let before = Clock::now();
            sleep(LOOK);
            waited += LOOK;
            let after = Clock::now();
            share = before
                .zip(after)
                .map_or(0.0, |(before, after)| after.others_since(&before));
        }
        let load = load();
        self.lines.push((
            "load before",
            format!(
                "{load:.2}, others use {:.0} % of the processors",
                share * 100.0
            ),
        ));
        // The load average still remembers the build; what others use now does not.
        if load > QUIET_LOAD && share > QUIET_SHARE {
            eprintln!(
                "WARNING: the machine is busy (load {load:.2}): figures will be 10 to 30 % off, or worse"
            );
        }
        self.begin = Clock::now();
    }

    /// Notes what others used while we measured.
    pub fn finish(&mut self) {
        if let Some((begin, end)) = self.begin.zip(Clock::now()) {
            let share = end.others_since(&begin) * 100.0;
            self.lines.push((
                "others meanwhile",
                format!("{share:.1} % of the processors"),
            ));
        }
    }

    /// What the page says: a name and a text each.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines.iter().map(|(name, text)| (*name, text.as_str()))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, text) in &self.lines {
            writeln!(f, "{name:<17} {text}")?;
        }
        Ok(())
    }
}

/// The commit that is checked out, and whether the tree differs from it.
pub fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&[
        "status",
        "--porcelain",
        "--",
        "crates",
        "bench",
        "Cargo.lock",
        ":!bench/results",
    ]);
    match changed.as_deref() {
        Some("") => commit,
        _ => format!("{commit}, changed"),
    }
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
}

/// What a program prints of itself, such as its version.
pub fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    output
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or("not here".to_owned(), |text| text.trim().to_owned())
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|first| first.parse().ok()).unwrap_or(0.0)
}
