//! `make run`: real files between two real processes, every hash checked by a third.
//!
//! 1. builds the `towline` binary for release
//! 2. gathers at least 1 GiB: the Rust sysroot and the system's documentation, topped up
//! 3. makes a development certificate and starts `towline serve --accept`
//! 4. sends the folders with `towline send`, with its own progress
//! 5. walks both trees and compares BLAKE3 hashes computed here
//! 6. prints rate and processor time of both ends and stops the server
//! 7. `towline perf` for three seconds against a server of two shards
//! 8. ten uploads beside a ping on the simulator, under four controllers, plotted
//! 9. a boat's telemetry over a bad link, every delta checked
//! 10. the page of `towline serve --web` in a headless browser, as a picture
//! 11. a page and a client in Python, who talk through one server in Python; removes the rest
//!
//! A sitter process holds the clean-up: it acts when this one ends in whatever way, Ctrl-C and
//! SIGKILL included, because its input then closes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::exec::{capture, cargo, program, relative, root, run as run_command, target, which};

/// Least to send, bytes.
const WANTED: u64 = 1 << 30;
/// Most to send, bytes: the copy stays well below the 3 GiB of disk the demonstration may use.
const MOST: u64 = 2 << 30;
/// Size of one generated file, bytes.
const GENERATED: u64 = 64 << 20;
/// How long the server may take to say where it listens, and to end when asked.
const PATIENCE: Duration = Duration::from_secs(15);
/// What a server says behind the address of its page.
const PAGE_LINE: &str = " in a browser on this machine";

/// `cargo xtask run`.
pub(crate) fn run() -> Outcome {
    println!("building towline for release");
    run_command(&mut cargo([
        "build",
        "--release",
        "--locked",
        "-p",
        "towline-cli",
    ]))?;
    let target = target()?;
    let towline = target.join("release/towline");
    let folder = target.join(format!("demo-{}", std::process::id()));
    fs::create_dir_all(folder.join("inbox")).map_err(|error| at(&folder, &error))?;
    let mut sitter = Sitter::start(&folder)?;
    let outcome = show(&towline, &folder, &mut sitter);
    if outcome.is_err() {
        println!("--- the server's last words");
        let log = fs::read_to_string(folder.join("server.log")).unwrap_or_default();
        for line in log.lines().rev().take(20).collect::<Vec<_>>().iter().rev() {
            println!("{line}");
        }
    }
    sitter.finish();
    match (&outcome, folder.exists()) {
        (Ok(()), true) => Err(format!("{} could not be removed", relative(&folder))),
        _ => outcome,
    }
}

fn show(towline: &Path, folder: &Path, sitter: &mut Sitter) -> Outcome {
    let trees = gather(folder)?;
    let sent: u64 = trees.iter().map(|tree| tree.bytes).sum();
    let files: usize = trees.iter().map(|tree| tree.files.len()).sum();
    enough_disk(folder, sent)?;
    println!("{files} files, {}", size(sent));

    run_command(ours(towline, folder).args(["cert", "dev"]))?;
    let pin = capture(ours(towline, folder).args(["cert", "pin"]))?;
    let mut command = ours(towline, folder);
    command.args(["serve", "--listen", "127.0.0.1:0", "--accept"]);
    command.arg(folder.join("inbox"));
    let (mut server, address) = serve(command, folder, sitter)?;
    let mut sender = ours(towline, folder);
    sender
        .args(["send", "--pin", pin.trim()])
        .args(trees.iter().map(|tree| &tree.folder))
        .arg(format!("towline://{address}/"));
    let outcome = transfer(&mut sender, &mut server, sitter);
    let server_seconds = processor_seconds(server.id());
    let stopped = stop(server, sitter);
    let (wall, sender_seconds) = outcome?;
    stopped?;

    println!("comparing every hash");
    let compared = compare(&trees, &folder.join("inbox"))?;
    let gigabytes = sent as f64 / 1e9;
    println!();
    println!(
        "sent      {files} files, {} in {:.1} s",
        size(sent),
        wall.as_secs_f64()
    );
    println!(
        "rate      {:.1} MB/s ({:.2} Gbit/s)",
        gigabytes * 1e3 / wall.as_secs_f64(),
        gigabytes * 8.0 / wall.as_secs_f64()
    );
    println!("sender    {}", processor(sender_seconds, gigabytes));
    println!("receiver  {}", processor(server_seconds, gigabytes));
    println!("checked   {compared} files, every BLAKE3 hash equal, nothing else in the inbox");
    println!();
    measure(towline, folder, pin.trim(), sitter)?;
    neighbours(towline, folder)?;
    secure_tcp(towline, folder, sitter)?;
    let mut started = Vec::new();
    let shown = crate::demo_link::show(towline, folder, &mut |pid| {
        sitter.watch(pid);
        started.push(pid);
    });
    for pid in started {
        sitter.forget(pid);
    }
    shown?;
    page(towline, folder, sitter)?;
    python(sitter)
}

/// What the transport carries when no disk is in the way.
fn measure(towline: &Path, folder: &Path, pin: &str, sitter: &mut Sitter) -> Outcome {
    println!("towline perf: four streams for three seconds, a server of two shards");
    let mut command = ours(towline, folder);
    command.args(["perf", "server", "--listen", "127.0.0.1:0", "--shards", "2"]);
    let (server, address) = serve(command, folder, sitter)?;
    let mut client = ours(towline, folder);
    client.args(["perf", "client", "-t", "3s", "-P", "4", "--pin", pin]);
    client.arg(format!("towline://{address}/"));
    let measured = run_command(&mut client);
    let stopped = stop(server, sitter);
    measured.and(stopped)
}

/// What each controller leaves to others.
fn neighbours(towline: &Path, folder: &Path) -> Outcome {
    println!();
    println!(
        "towline sim compare: ten uploads beside a ping, a minute of 10 Mbit/s for each controller"
    );
    let plot = target()?.join("uplink.svg");
    let mut command = ours(towline, folder);
    command.args(["sim", "compare", "--cc", "cubic,bbr,ledbat++,background"]);
    command.arg(root().join("scenarios/uplink.toml"));
    command.arg("--svg").arg(&plot);
    run_command(&mut command)
}

/// Encrypted TCP beside plain TCP.
fn secure_tcp(towline: &Path, folder: &Path, sitter: &mut Sitter) -> Outcome {
    println!();
    println!("towline stcp: requests and answers of 4 kB over TCP, encrypted and in clear");
    let pin = capture(ours(towline, folder).args(["stcp", "key"]))?;
    for (server_flags, client_flags) in [
        (["--anonymous-clients"], vec!["--pin", pin.trim()]),
        (["--plain"], vec!["--plain"]),
    ] {
        let mut command = ours(towline, folder);
        command.args(["stcp", "echo-server", "--listen", "127.0.0.1:0"]);
        command.args(server_flags);
        let (server, address) = serve(command, folder, sitter)?;
        let mut load = ours(towline, folder);
        load.args(["stcp", "echo-load", &address, "-t", "2s", "-c", "10"]);
        load.args(["-s", "4k"]).args(client_flags);
        let measured = run_command(&mut load);
        let stopped = stop(server, sitter);
        measured.and(stopped)?;
    }
    Ok(())
}

/// WebTransport in a browser, where there is one.
fn page(towline: &Path, folder: &Path, sitter: &mut Sitter) -> Outcome {
    println!();
    println!("towline serve --web: a page for browsers, over WebTransport");
    let mut command = ours(towline, folder);
    command.args(["serve", "--listen", "127.0.0.1:0", "--web"]);
    let (server, address) = serve(command, folder, sitter)?;
    let shown = match missing_for_pictures() {
        None => picture(folder),
        Some(name) => {
            println!("SKIPPED the picture of the page: {name} is not installed");
            let pin = capture(ours(towline, folder).args(["cert", "pin", "--certificate"]));
            pin.map(|pin| println!("WebTransport is at https://{address}, {}", pin.trim()))
        }
    };
    let stopped = stop(server, sitter);
    shown.and(stopped)
}

/// Has a headless browser show the page that the server in the log names, while it tries everything.
fn picture(folder: &Path) -> Outcome {
    let log = folder.join("server.log");
    let started = Instant::now();
    let url = loop {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let line = |line: &str| Some(line.trim().strip_suffix(PAGE_LINE)?.to_owned());
        match said.lines().find_map(line) {
            Some(url) => break url,
            None if started.elapsed() > PATIENCE => return Err("the server names no page".into()),
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    let words = ["connected", "MB/s", "ms"];
    take_picture(&format!("{url}#show"), "page.png", "12", &words)
}

/// What is not installed of what takes pictures of pages.
fn missing_for_pictures() -> Option<&'static str> {
    ["node", "chromium"]
        .into_iter()
        .find(|name| which(name).is_none())
}

/// Shows a page to a headless browser for so many seconds and keeps a picture; the page has to say the words.
fn take_picture(url: &str, name: &str, seconds: &str, words: &[&str]) -> Outcome {
    let picture = target()?.join(name);
    let script = root().join("web/picture.mjs");
    let mut command = program("node", [&script]);
    let said = capture(command.arg(url).arg(&picture).arg(seconds))?;
    if let Some(word) = words.iter().find(|word| !said.contains(**word)) {
        return Err(format!("the page does not say `{word}`:\n{said}"));
    }
    println!("picture   {}", relative(&picture));
    Ok(())
}

/// A page in a browser and a client in Python, through one server in Python.
fn python(sitter: &mut Sitter) -> Outcome {
    println!();
    println!("browser_chat.py: a page and a client in Python talk through a server in Python");
    if let Some(name) = missing_for_pictures() {
        println!("SKIPPED Python and the browser: {name} is not installed");
        return Ok(());
    }
    let environment = match crate::python::built(&["--release"])? {
        Ok(environment) => environment,
        Err(why) => {
            println!("SKIPPED Python and the browser: {why}");
            return Ok(());
        }
    };
    let mut command = Command::new(environment.join("bin/python"));
    command.arg(root().join("examples/python/browser_chat.py"));
    let mut chat = command
        .arg("--page")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the chat did not start: {error}"))?;
    sitter.watch(chat.id());
    let outcome = talk(&mut chat);
    let _ = chat.kill();
    let _ = chat.wait();
    sitter.forget(chat.id());
    outcome
}

fn talk(chat: &mut Child) -> Outcome {
    let output = chat.stdout.take().ok_or("the chat has no output")?;
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let url = lines
        .find_map(|line| Some(line.strip_prefix("the page is at ")?.to_owned()))
        .ok_or("the chat names no page")?;
    let shown = take_picture(&url, "python.png", "8", &["python: ahoy page"]);
    // It would go on until the page's session has timed out.
    let _ = chat.kill();
    let said: Vec<String> = lines.collect();
    for line in &said {
        println!("said      {line}");
    }
    shown?;
    match said.iter().any(|line| line == "page: ahoy python") {
        true => Ok(()),
        false => Err("the page did not answer Python".to_owned()),
    }
}

/// The binary, with a home of its own for the development certificate.
fn ours(towline: &Path, folder: &Path) -> Command {
    let mut command = Command::new(towline);
    command
        .env("TOWLINE_HOME", folder.join("home"))
        .stdin(Stdio::null());
    command
}

/// The server, and the address it says it listens on.
fn serve(mut command: Command, folder: &Path, sitter: &mut Sitter) -> Outcome<(Child, String)> {
    let path = folder.join("server.log");
    let log = File::create(&path).map_err(|error| at(&path, &error))?;
    let errors = log.try_clone().map_err(|error| at(&path, &error))?;
    let mut server = command
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("the server did not start: {error}"))?;
    sitter.watch(server.id());
    let started = Instant::now();
    loop {
        let said = fs::read_to_string(&path).unwrap_or_default();
        let address = said
            .split_inclusive('\n')
            .find_map(|line| line.strip_prefix("listening ")?.strip_suffix('\n'));
        // What comes behind it is for people.
        if let Some(address) = address.and_then(|said| said.split(',').next()) {
            return Ok((server, address.to_owned()));
        }
        if let Ok(Some(status)) = server.try_wait() {
            sitter.forget(server.id());
            return Err(format!("the server ended at once with {status}"));
        }
        if started.elapsed() > PATIENCE {
            return Err(format!(
                "the server did not say within {} s where it listens",
                PATIENCE.as_secs()
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the sender to its end; wall time and its processor seconds.
fn transfer(
    command: &mut Command,
    server: &mut Child,
    sitter: &mut Sitter,
) -> Outcome<(Duration, Option<f64>)> {
    let started = Instant::now();
    let mut sender = command
        .spawn()
        .map_err(|error| format!("the sender did not start: {error}"))?;
    sitter.watch(sender.id());
    while !has_ended(&mut sender) {
        if let Ok(Some(status)) = server.try_wait() {
            let _ = sender.kill();
            let _ = sender.wait();
            return Err(format!(
                "the server ended during the transfer with {status}"
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let wall = started.elapsed();
    let seconds = processor_seconds(sender.id());
    let status = sender
        .wait()
        .map_err(|error| format!("waiting for the sender: {error}"))?;
    sitter.forget(sender.id());
    if !status.success() {
        return Err(format!("the sender ended with {status}"));
    }
    Ok((wall, seconds))
}

/// Asks the server to end and waits; kills it when it does not.
fn stop(mut server: Child, sitter: &mut Sitter) -> Outcome {
    let _ = program("kill", ["-TERM", &server.id().to_string()]).status();
    let started = Instant::now();
    let status: Option<ExitStatus> = loop {
        match server.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if started.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            _ => break None,
        }
    };
    if status.is_none() {
        let _ = server.kill();
        let _ = server.wait();
    }
    sitter.forget(server.id());
    match status {
        // Asked to end by a signal, it ends as interrupted (docs/exit-codes.md).
        Some(status) if status.success() || status.code() == Some(130) => Ok(()),
        Some(status) => Err(format!("the server ended with {status}")),
        None => Err(format!(
            "the server did not end within {} s of SIGTERM",
            PATIENCE.as_secs()
        )),
    }
}

/// A folder to send, and what is in it.
struct Tree {
    folder: PathBuf,
    /// Regular files by path relative to the folder, with their sizes.
    files: BTreeMap<PathBuf, u64>,
    /// Symbolic links: sent or not as the sender chooses, never counted.
    links: Vec<PathBuf>,
    bytes: u64,
}

/// The sysroot and the documentation, without what would exceed `MOST`, topped up to `WANTED`.
fn gather(folder: &Path) -> Outcome<Vec<Tree>> {
    let sysroot = capture(&mut program("rustc", ["--print", "sysroot"]))?;
    let mut trees: Vec<Tree> = Vec::new();
    let mut total = 0;
    for candidate in [Path::new(sysroot.trim()), Path::new("/usr/share/doc")] {
        match walk(candidate) {
            Ok(tree) if total + tree.bytes <= MOST && !tree.files.is_empty() => {
                println!(
                    "{}: {} files, {}",
                    candidate.display(),
                    tree.files.len(),
                    size(tree.bytes)
                );
                total += tree.bytes;
                trees.push(tree);
            }
            Ok(tree) => println!("{}: left out ({})", candidate.display(), size(tree.bytes)),
            Err(error) => println!("left out: {error}"),
        }
    }
    if total < WANTED {
        let generated = folder.join("generated");
        generate(&generated, WANTED - total)?;
        let tree = walk(&generated)?;
        println!(
            "generated: {} files, {}",
            tree.files.len(),
            size(tree.bytes)
        );
        trees.push(tree);
    }
    Ok(trees)
}

fn walk(folder: &Path) -> Outcome<Tree> {
    let mut tree = Tree {
        folder: folder.to_path_buf(),
        files: BTreeMap::new(),
        links: Vec::new(),
        bytes: 0,
    };
    let mut folders = vec![folder.to_path_buf()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).map_err(|error| at(&inner, &error))? {
            let path = entry.map_err(|error| at(&inner, &error))?.path();
            let kind = fs::symlink_metadata(&path).map_err(|error| at(&path, &error))?;
            let Ok(name) = path.strip_prefix(folder) else {
                continue;
            };
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                tree.bytes += kind.len();
                tree.files.insert(name.to_path_buf(), kind.len());
            } else {
                tree.links.push(name.to_path_buf());
            }
        }
    }
    Ok(tree)
}

/// Files that do not compress and differ from one another, `bytes` in all or a little more.
fn generate(folder: &Path, bytes: u64) -> Outcome {
    fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    for index in 0..bytes.div_ceil(GENERATED) {
        let path = folder.join(format!("generated-{index:02}.bin"));
        let mut stream = blake3::Hasher::new()
            .update(&index.to_le_bytes())
            .finalize_xof();
        let mut file = File::create(&path).map_err(|error| at(&path, &error))?;
        let mut block = vec![0; 1 << 20];
        for _ in 0..GENERATED >> 20 {
            stream.fill(&mut block);
            file.write_all(&block).map_err(|error| at(&path, &error))?;
        }
    }
    Ok(())
}

/// The number of files compared; an error names the first few that differ.
fn compare(trees: &[Tree], inbox: &Path) -> Outcome<usize> {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for tree in trees {
        let received = inbox.join(tree.folder.file_name().unwrap_or_default());
        for name in tree.files.keys() {
            let (here, there) = (tree.folder.join(name), received.join(name));
            match (hash(&here), hash(&there)) {
                (Ok(sent), Ok(arrived)) if sent == arrived => compared += 1,
                (Err(error), _) | (_, Err(error)) => wrong.push(error),
                _ => wrong.push(format!(
                    "{} differs from {}",
                    there.display(),
                    here.display()
                )),
            }
        }
        let more = walk(&received)?;
        let expected = |name: &PathBuf| tree.files.contains_key(name) || tree.links.contains(name);
        wrong.extend(
            more.files
                .keys()
                .filter(|name| !expected(name))
                .map(|name| format!("{} was not sent", name.display())),
        );
    }
    if wrong.is_empty() {
        return Ok(compared);
    }
    wrong.sort();
    let shown = wrong
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n  ");
    Err(format!(
        "{} of {} files are wrong:\n  {shown}",
        wrong.len(),
        wrong.len() + compared
    ))
}

fn hash(path: &Path) -> Outcome<blake3::Hash> {
    let file = File::open(path).map_err(|error| at(path, &error))?;
    let mut hasher = blake3::Hasher::new();
    hasher
        .update_reader(file)
        .map_err(|error| at(path, &error))?;
    Ok(hasher.finalize())
}

/// Ends processes and removes the folder once this process is gone or done.
struct Sitter {
    child: Child,
    orders: ChildStdin,
}

impl Sitter {
    fn start(folder: &Path) -> Outcome<Self> {
        const SCRIPT: &str = r#"
            trap '' INT TERM HUP
            pids=
            while read -r order pid; do
                case "$order" in
                    watch) pids="$pids $pid" ;;
                    forget) pids=$(for p in $pids; do [ "$p" = "$pid" ] || printf ' %s' "$p"; done) ;;
                esac
            done
            for p in $pids; do kill "$p" 2>/dev/null; done
            [ -z "$pids" ] || sleep 1
            for p in $pids; do kill -9 "$p" 2>/dev/null; done
            rm -rf -- "$1""#;
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "sitter"])
            .arg(folder)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`sh` did not start: {error}"))?;
        let orders = child.stdin.take().ok_or("the sitter has no input")?;
        Ok(Self { child, orders })
    }

    fn watch(&mut self, pid: u32) {
        let _ = writeln!(self.orders, "watch {pid}");
    }

    fn forget(&mut self, pid: u32) {
        let _ = writeln!(self.orders, "forget {pid}");
    }

    /// Lets it clean up, and waits for that.
    fn finish(self) {
        let Self { mut child, orders } = self;
        drop(orders);
        let _ = child.wait();
    }
}

/// Whether the process ended; it stays a zombie, so that its times can still be read.
fn has_ended(child: &mut Child) -> bool {
    match stat(child.id()) {
        Some(fields) => fields.first().is_some_and(|state| state == "Z"),
        None => !matches!(child.try_wait(), Ok(None)),
    }
}

/// User and system seconds of a process, as Linux counts them.
fn processor_seconds(pid: u32) -> Option<f64> {
    let fields = stat(pid)?;
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let per_second: f64 = capture(&mut program("getconf", ["CLK_TCK"]))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(ticks / per_second)
}

/// The fields of `/proc/PID/stat` after the program's name, which may hold spaces.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn processor(seconds: Option<f64>, gigabytes: f64) -> String {
    match seconds {
        Some(seconds) => format!(
            "{seconds:.2} CPU seconds, {:.2} for each GB",
            seconds / gigabytes
        ),
        None => "CPU seconds: not measured on this system".to_owned(),
    }
}

/// Fails when the copy would not fit.
fn enough_disk(folder: &Path, bytes: u64) -> Outcome {
    let Ok(table) = capture(program("df", ["-Pk"]).arg(folder)) else {
        return Ok(());
    };
    let free = table
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(3))
        .and_then(|kib| kib.parse::<u64>().ok());
    match free {
        Some(kib) if kib * 1024 < bytes + (64 << 20) => Err(format!(
            "the copy needs {}, the disk has {}",
            size(bytes),
            size(kib * 1024)
        )),
        _ => Ok(()),
    }
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn size(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}
