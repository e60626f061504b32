//! The delta link in `make run`: a boat and a shore, with a bad network between them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::exec::{capture, program};

/// Deltas that are sent, and how many a second.
const DELTAS: usize = 800;
const PACE: &str = "100";
/// How long a program may take to start, and all deltas to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shows a link, and checks what arrives; `watch` is told of every process that is started.
pub(crate) fn show(towline: &Path, folder: &Path, watch: &mut dyn FnMut(u32)) -> Outcome {
    println!();
    println!("towline link run: telemetry of a boat over a link that loses 5 %, round trip 100 ms");
    let mut link = Link {
        towline,
        folder: folder.join("link"),
        children: Vec::new(),
        watch,
    };
    let shown = link.run();
    // In the order of their start; who is gone already does not mind.
    for child in &mut link.children {
        let _ = program("kill", ["-TERM", &child.id().to_string()])
            .stderr(Stdio::null())
            .status();
        let _ = child.wait();
    }
    shown
}

struct Link<'a> {
    towline: &'a Path,
    folder: PathBuf,
    children: Vec<Child>,
    watch: &'a mut dyn FnMut(u32),
}

impl Link<'_> {
    fn ours(&self) -> Command {
        let mut command = Command::new(self.towline);
        command
            .env("TOWLINE_HOME", self.folder.join("home"))
            .env("XDG_RUNTIME_DIR", &self.folder)
            .stdin(Stdio::null());
        command
    }

    fn run(&mut self) -> Outcome {
        let said = |error: std::io::Error| error.to_string();
        fs::create_dir_all(&self.folder).map_err(said)?;
        let key = capture(self.ours().args(["link", "keygen"]))?;
        let key = key.trim();
        let log = self.folder.join("log.jsonl");
        let shore = self.folder.join("shore.toml");
        let text = format!(
            "name = \"shore\"\n[listen]\naddress = \"127.0.0.1:0\"\n[[client]]\nname = \"vela\"\nkey = \"{key}\"\n[[sink]]\nkind = \"file\"\npath = \"{}\"\n",
            log.display()
        );
        fs::write(&shore, text).map_err(said)?;
        let mut command = self.ours();
        command.args(["link", "run"]).arg(&shore);
        let at = self.listening(command)?;
        let mut command = self.ours();
        command.args(["relay", "127.0.0.1:0", &at, "--both", "loss=5%,delay=50ms"]);
        let through = self.listening(command)?;
        let boat = self.folder.join("boat.toml");
        let text = format!(
            "name = \"vela\"\n[peer]\nurl = \"towline://{through}\"\nkey = \"{key}\"\nfallback = \"never\"\n[spool]\npath = \"{}\"\n[[source]]\nkind = \"stdin\"\n",
            self.folder.join("spool").display()
        );
        fs::write(&boat, text).map_err(said)?;
        let deltas = self.folder.join("deltas.jsonl");
        fs::write(&deltas, generated()).map_err(said)?;

        let mut replay = self.ours();
        replay.args(["link", "replay", "--pace", PACE]).arg(&deltas);
        let mut replay = replay.stdout(Stdio::piped()).spawn().map_err(said)?;
        let out = replay.stdout.take().ok_or("the replay has no output")?;
        self.keep(replay);
        let mut run = self.ours();
        run.args(["--quiet", "link", "run"]).arg(&boat).stdin(out);
        let run = run.spawn().map_err(said)?;
        self.keep(run);
        let started = Instant::now();
        let mut shown = Instant::now() + Duration::from_secs(3);
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if text.lines().count() >= DELTAS {
                break;
            }
            if started.elapsed() > PATIENCE {
                return Err(format!(
                    "{} of {DELTAS} deltas arrived",
                    text.lines().count()
                ));
            }
            if shown <= Instant::now() {
                shown += Duration::from_secs(2);
                // A link that has all it was given is gone.
                let status = capture(
                    self.ours()
                        .args(["link", "show", "vela"])
                        .stderr(Stdio::null()),
                );
                print!("{}", status.unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(100));
        }
        let text = fs::read_to_string(&log).map_err(said)?;
        let (mut sent, mut came): (Vec<String>, Vec<&str>) = (
            generated().lines().map(str::to_owned).collect(),
            text.lines().collect(),
        );
        sent.sort_unstable();
        came.sort_unstable();
        match sent == came {
            true => {
                println!("checked   {DELTAS} deltas, each arrived once and as it was sent");
                Ok(())
            }
            false => Err("what arrived is not what was sent".to_owned()),
        }
    }

    fn keep(&mut self, child: Child) {
        (self.watch)(child.id());
        self.children.push(child);
    }

    /// Starts a program that says where it listens.
    fn listening(&mut self, mut command: Command) -> Outcome<String> {
        let path = self.folder.join(format!("log-{}", self.children.len()));
        let log = File::create(&path).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let child = command.stdout(log).stderr(errors).spawn();
        self.keep(child.map_err(|error| error.to_string())?);
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let said = fs::read_to_string(&path).unwrap_or_default();
            let mut lines = said
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            let address = lines.find_map(|line| line.strip_prefix("listening "));
            if let Some(address) = address.and_then(|rest| rest.split_whitespace().next()) {
                return Ok(address.trim_end_matches(',').to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(fs::read_to_string(&path).unwrap_or_default())
    }
}

/// Deltas of a boat under way.
fn generated() -> String {
    let mut text = String::new();
    for at in 0..DELTAS {
        let (path, value) = match at % 4 {
            0 => ("navigation.speedOverGround", 3.0 + (at % 60) as f64 / 8.0),
            1 => ("navigation.headingTrue", (at % 628) as f64 / 128.0),
            2 => (
                "environment.depth.belowTransducer",
                20.0 - (at % 96) as f64 / 16.0,
            ),
            _ => (
                "environment.wind.speedApparent",
                6.0 + (at % 37) as f64 / 4.0,
            ),
        };
        let millis = at * 10;

        let _ = writeln!(
            text,
            "{{\"context\":\"vessels.self\",\"updates\":[{{\"$source\":\"n2k.{}\",\"timestamp\":\"2026-11-27T10:00:{:02}.{:03}Z\",\"values\":[{{\"path\":\"{path}\",\"value\":{value:?}}}]}}]}}",
            at % 4,
            millis / 1000,
            millis % 1000
        );
    }
    text
}
