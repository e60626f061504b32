//! `cargo xtask readme`: every block of README and of the walk-throughs, run as it is printed.
//!
//! 1. `blocks` reads a page: each fenced block with the plan in the comment above it;
//! 2. `Machines` is where they run: a scratch folder with the files that the pages speak of, a home
//!    for the server's side and one for the client's, and the programs that were left running;
//! 3. shell blocks run under `bash -e`, in order; those of a server are started line by line, and the
//!    next block runs when each says that it listens;
//! 4. Rust blocks are compiled in a package that has the dependencies the page prints.
//!
//! Only pins are filled in, as a reader does it, and this host for `SERVER:`. `sha256/…` is the pin of
//! the server that runs, and `sha256/SERVER` and `sha256/CLIENT` are what a block before it printed for
//! `towline stcp key` with "on the server" and "on the client" beside it; where a page has no such
//! block, what that command prints at either side. `sha256/SHORE` and `sha256/BOAT` are the same for
//! `towline link keygen`, and a page has to have that block. A block of shell or Rust without a plan is an
//! error, and so is one that cannot be run and does not say why.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::exec::{capture, cargo, root, run, target, which};
use crate::report::Skips;

/// The pages whose blocks are commands.
const PAGES: [&str; 6] = [
    "README.md",
    "docs/delta-link.md",
    "docs/monitoring.md",
    "docs/pins.md",
    "docs/secure-tcp.md",
    "docs/secure-tcp-programs.md",
];

/// The pin of the server that runs.
const ANY_PIN: &str = "sha256/…";

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one block may take.
const LIMIT: &str = "120";

/// A fenced block and what to do with it.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    page: &'static str,
    line: usize,
    text: String,
    plan: Plan,
}

#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Nothing that runs: output, a grammar, a configuration.
    Text,
    /// To its end, as the client.
    Run { needs: Vec<String> },
    /// Each command stays until the next block of servers.
    Serve { needs: Vec<String> },
    /// Into `src/main.rs`.
    Rust,
    /// Into `Cargo.toml`.
    Dependencies,
    /// Not here, for a reason.
    Not(String),
}

/// Runs them all; the closing line counts them.
pub(crate) fn readme(skips: &mut Skips) -> Outcome<String> {
    let mut pages = Vec::new();
    for page in PAGES {
        let path = root().join(page);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        pages.push(blocks(page, &text)?);
    }
    crate::install::build("dev")?;
    let mut passed = 0;
    let mut failures = Vec::new();
    for blocks in &pages {
        let mut machines = Machines::new()?;
        for block in blocks {
            let name = format!("{}:{}", block.page, block.line);
            match machines.run(block, skips) {
                Ok(true) => {
                    println!("ok      {name}");
                    passed += 1;
                }
                Ok(false) => {}
                Err(why) => {
                    println!("FAILED  {name}: {why}");
                    failures.push(name);
                }
            }
        }
        match compile(blocks) {
            Ok(count) => passed += count,
            Err(why) => failures.push(why),
        }
    }
    let closing = format!("{passed} passed, {} failed", failures.len());
    println!("{closing}");
    match failures.is_empty() {
        true => Ok(closing),
        false => Err(format!("{closing}: {}", failures.join(", "))),
    }
}

/// The fenced blocks of a page.
fn blocks(page: &'static str, text: &str) -> Outcome<Vec<Block>> {
    let mut found = Vec::new();
    let mut plan: Option<String> = None;
    let mut open: Option<(usize, String, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some((start, language, body)), Some("")) => {
                let plan = plan_of(language, plan.take())
                    .map_err(|why| format!("{page}:{start}: {why}"))?;
                found.push(Block {
                    page,
                    line: *start,
                    text: std::mem::take(body),
                    plan,
                });
                open = None;
            }
            (Some((_, _, body)), _) => {
                body.push_str(line);
                body.push('\n');
            }
            (None, Some(language)) => open = Some((index + 1, language.to_owned(), String::new())),
            (None, None) => match line.strip_prefix("<!-- ") {
                Some(comment) => plan = comment.strip_suffix(" -->").map(str::to_owned),
                None if line.is_empty() => {}
                None => plan = None,
            },
        }
    }
    match open {
        Some((start, ..)) => Err(format!("{page}:{start}: a block without an end")),
        None => Ok(found),
    }
}

fn plan_of(language: &str, comment: Option<String>) -> Outcome<Plan> {
    if let Some(why) = comment
        .as_deref()
        .and_then(|it| it.strip_prefix("not run: "))
    {
        return Ok(Plan::Not(why.to_owned()));
    }
    let words: Vec<&str> = comment
        .as_deref()
        .and_then(|comment| comment.strip_prefix("run"))
        .map(|rest| rest.trim_start_matches(':').split_whitespace().collect())
        .unwrap_or_default();
    let needs = words.iter().filter_map(|word| word.strip_prefix("needs="));
    let needs = needs.map(str::to_owned).collect();
    match language {
        "text" => Ok(Plan::Text),
        "toml" if words.contains(&"dependencies") => Ok(Plan::Dependencies),
        "toml" => Ok(Plan::Text),
        "rust" => Ok(Plan::Rust),
        "sh" if words.contains(&"serve") => Ok(Plan::Serve { needs }),
        "sh" if comment.is_some() => Ok(Plan::Run { needs }),
        "sh" => Err(
            "say `<!-- run -->`, `<!-- run: serve -->` or `<!-- not run: why -->` above this block"
                .into(),
        ),
        other => Err(format!(
            "`{other}` says nothing; write sh, rust, toml or text behind the fence"
        )),
    }
}

/// Where a page's blocks run.
struct Machines {
    folder: PathBuf,
    servers: Vec<Server>,
    count: usize,
    /// The pin in the URL that the running server printed.
    url_pin: Option<String>,
    /// By `SERVER` or `CLIENT`: the pins that the page's own commands printed.
    pins: BTreeMap<String, String>,
}

/// A program that was started by a block; it is ended when dropped.
struct Server {
    child: Child,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a child that is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machines {
    fn new() -> Outcome<Self> {
        let folder = target()?.join("readme");
        let _ = fs::remove_dir_all(&folder);
        let wrong = |e: std::io::Error| format!("{}: {e}", folder.display());
        for name in ["photos", "backup", "inbox"] {
            fs::create_dir_all(folder.join(name)).map_err(wrong)?;
        }
        for (name, length) in [
            ("photos/boat.jpg", 300_000),
            ("backup/all.tar", 2_000_000),
            ("notes.txt", 1000),
            ("film.mkv", 5_000_000),
        ] {
            let content: Vec<u8> = (0..length).map(|i| (i * 31 % 251) as u8).collect();
            fs::write(folder.join(name), content).map_err(wrong)?;
        }
        // Examples name files of the tree.
        let scenarios = root().join("scenarios");
        std::os::unix::fs::symlink(scenarios, folder.join("scenarios")).map_err(wrong)?;
        Ok(Self {
            folder,
            servers: Vec::new(),
            count: 0,
            url_pin: None,
            pins: BTreeMap::new(),
        })
    }

    /// Whether the block ran; what it cannot run it names.
    fn run(&mut self, block: &Block, skips: &mut Skips) -> Outcome<bool> {
        let name = format!("readme, {}:{}", block.page, block.line);
        let (needs, serves) = match &block.plan {
            Plan::Run { needs } => (needs, false),
            Plan::Serve { needs } => (needs, true),
            Plan::Not(why) => {
                println!("not run {}:{}: {why}", block.page, block.line);
                return Ok(false);
            }
            Plan::Text | Plan::Rust | Plan::Dependencies => return Ok(false),
        };
        if let Some(missing) = needs.iter().find(|need| which(need).is_none()) {
            skips.add(&name, &format!("{missing} is not installed"));
            return Ok(false);
        }
        let text = self.filled_in(&block.text)?;
        if !serves {
            let output = self
                .shell("client", &text)?
                .output()
                .map_err(|e| format!("bash: {e}"))?;
            let said = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(format!("{}\n{text}{said}{errors}", output.status));
            }
            self.pins.extend(pins_in(&text, &said));
            return Ok(true);
        }
        self.servers.clear();
        self.url_pin = None;
        for command in commands(&text) {
            self.serve(&command)?;
        }
        Ok(true)
    }

    /// Starts one server and waits until it listens, if it is one of ours.
    fn serve(&mut self, command: &str) -> Outcome {
        let log = self.folder.join(format!("server-{}.log", self.count));
        self.count += 1;
        let file = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| e.to_string())?;
        let role = match command.contains("proxy client") {
            true => "client",
            false => "server",
        };
        let child = self
            .shell(role, &format!("exec env {command}"))?
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("bash: {e}"))?;
        self.servers.push(Server { child, log });
        let Some(server) = self.servers.last_mut() else {
            return Ok(());
        };
        let started = Instant::now();
        loop {
            let said = fs::read_to_string(&server.log).unwrap_or_default();
            // The end of a link that sends listens to nobody.
            let ours = said.contains("listening") || said.contains("live over UDP");
            let theirs = !command.contains("towline") && said.contains("Ready to accept");
            if ours || theirs {
                let pin = said.split('\'').find_map(pin_of).map(str::to_owned);
                self.url_pin = pin.or(self.url_pin.take());
                return Ok(());
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("`{command}` ended ({status}): {said}"));
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("`{command}` does not listen: {said}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn shell(&self, role: &str, text: &str) -> Outcome<Command> {
        let mut path = target()?.join("debug").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new("timeout");
        // A server is ended by its own process, so that it must be the one we started.
        if text.starts_with("exec ") {
            command = Command::new("bash");
        } else {
            command.args([LIMIT, "bash"]);
        }
        command
            .args(["-euo", "pipefail", "-c", text])
            .current_dir(&self.folder)
            .env("PATH", path)
            // None that a page names: a command without the home that it needs has another key.
            .env("TOWLINE_HOME", self.folder.join(format!("user-{role}")))
            .env("XDG_RUNTIME_DIR", self.folder.join("run"))
            .stdin(Stdio::null());
        Ok(command)
    }

    /// The block with what the page cannot know.
    fn filled_in(&self, text: &str) -> Outcome<String> {
        let mut text = text.to_owned();
        for role in ["SERVER", "CLIENT", "SHORE", "BOAT"] {
            let place = format!("sha256/{role}");
            if text.contains(&place) {
                let pin = match self.pins.get(role) {
                    Some(pin) => pin.clone(),
                    None => capture(&mut self.shell(&role.to_lowercase(), "towline stcp key")?)?,
                };
                text = text.replace(&place, pin.trim());
            }
        }
        if text.contains(ANY_PIN) {
            let pin = self.url_pin.as_ref();
            text = text.replace(
                ANY_PIN,
                pin.ok_or("no server runs whose pin this could be")?,
            );
        }
        match text.contains('…') {
            true => Err("`…` stands where nothing is known to fill it in".into()),
            false => Ok(text.replace("SERVER:", "127.0.0.1:")),
        }
    }
}

/// The pin in a URL.
fn pin_of(url: &str) -> Option<&str> {
    let (_, fragment) = url.strip_prefix("towline://")?.split_once('#')?;
    fragment.split('&').next()
}

/// Whose pins a block's `towline stcp key` or `link keygen` printed: the comments beside them say it.
fn pins_in(text: &str, said: &str) -> Vec<(String, String)> {
    let roles = text
        .lines()
        .filter(|line| line.contains("towline stcp key") || line.contains("towline link keygen"))
        .map(|line| line.split_once("# on the ").map(|(_, role)| role.trim()));
    let pins = said.lines().filter(|line| line.starts_with("sha256/"));
    roles
        .zip(pins)
        .filter_map(|(role, pin)| Some((role?.to_uppercase(), pin.to_owned())))
        .collect()
}

/// The commands of a block of servers: lines, joined where they end in a backslash.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| match line.split_once(" # ") {
        Some((command, _comment)) => command.trim().to_owned(),
        None => line.trim().to_owned(),
    });
    lines.filter(|line| !line.is_empty()).collect()
}

/// Compiles a page's Rust, with the dependencies that it prints; how many blocks there were.
fn compile(blocks: &[Block]) -> Outcome<usize> {
    let of = |plan: &Plan| {
        let texts = blocks.iter().filter(|block| block.plan == *plan);
        texts.map(|block| block.text.as_str()).collect::<Vec<_>>()
    };
    let (rust, dependencies) = (of(&Plan::Rust), of(&Plan::Dependencies));
    let (Some(first), false) = (blocks.first(), rust.is_empty()) else {
        return Ok(0);
    };
    if dependencies.is_empty() {
        return Err(format!("{}: Rust without lines for Cargo.toml", first.page));
    }
    let place = target()?.join("readme-rust");
    let _ = fs::remove_dir_all(&place);
    let wrong = |e: std::io::Error| format!("{}: {e}", place.display());
    fs::create_dir_all(place.join("yours/src")).map_err(wrong)?;
    // The page says that the tree lies beside the package.
    std::os::unix::fs::symlink(root(), place.join("towline")).map_err(wrong)?;
    let manifest = format!(
        "[package]\nname = \"yours\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n{}\n[workspace]\n",
        dependencies.concat()
    );
    fs::write(place.join("yours/Cargo.toml"), manifest).map_err(wrong)?;
    // Each block stands by itself.
    let modules: String = rust
        .iter()
        .enumerate()
        .map(|(index, text)| format!("pub mod block{index} {{\n{text}\n}}\n"))
        .collect();
    let text = format!("#![allow(dead_code)]\n{modules}");
    fs::write(place.join("yours/src/lib.rs"), text).map_err(wrong)?;
    fs::copy(root().join("Cargo.lock"), place.join("yours/Cargo.lock")).map_err(wrong)?;
    let mut check = cargo(["check", "--quiet", "--manifest-path"]);
    check.arg(place.join("yours/Cargo.toml"));
    check.env("CARGO_TARGET_DIR", target()?.join("readme-target"));
    run(&mut check).map_err(|why| format!("the Rust of {}: {why}", first.page))?;
    println!(
        "ok      {}: {} blocks of Rust compile",
        first.page,
        rust.len()
    );
    Ok(rust.len())
}

#[cfg(test)]
mod tests;
