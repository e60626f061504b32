//! Runs the `towline` program: servers that are stopped when dropped, clients with their output.
#![allow(dead_code, reason = "each test program uses a part of this module")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use towline::config::{self, Identity, Rotation, UnixTime};
use towline::identity::{BACKDATED_BY, DEV_LIFETIME, SWAP_BEFORE_END};

/// No single program of these tests may take longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at what is waited for.
const STEP: Duration = Duration::from_millis(5);

/// What such a step counts for at the most: whoever stops all of it, to measure something else, stops the clock.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// A folder that is removed when dropped, and a loopback address that no other test uses.
pub(crate) struct Scratch {
    folder: PathBuf,
    address: Ipv4Addr,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("towline-e2e-{process}-{count}"));
        fs::create_dir_all(&folder).unwrap();
        let [.., high, low] = process.to_be_bytes();
        Self {
            folder,
            address: Ipv4Addr::new(127, 64 | (high & 63), low, count),
        }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// Where nobody listens but who is told to. A port that the system chose goes to the next test as soon as its owner
    /// ends; this one stays, for a program that is started again or that stays away.
    pub(crate) fn address(&self) -> String {
        SocketAddrV4::new(self.address, 4433).to_string()
    }

    pub(crate) fn write(&self, below: &str, length: usize) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut data = vec![0; length];
        blake3::Hasher::new()
            .update(below.as_bytes())
            .finalize_xof()
            .fill(&mut data);
        fs::write(&path, data).unwrap();
        path
    }

    /// Gives programs here a certificate that is shown for so long from now on, and the next one; the pins of both.
    pub(crate) fn certificates_that_swap_in(&self, time: Duration) -> [String; 2] {
        let now = config::unix_now();
        let age = DEV_LIFETIME - BACKDATED_BY - SWAP_BEFORE_END - time;
        let made = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) - age);
        let shown = Identity::generate_dev(&["localhost", "127.0.0.1"], made).unwrap();
        let rotation = Rotation::new([shown.clone()], now).unwrap();
        let next = rotation.successor(&["localhost"], now).unwrap();
        let home = self.path("home");
        fs::create_dir_all(&home).unwrap();
        for (name, identity) in [("cert.pem", &shown), ("next-cert.pem", &next)] {
            fs::write(home.join(name), identity.certificate_pem().unwrap()).unwrap();
        }
        let key = home.join("key.pem");
        fs::write(&key, shown.private_key_pem()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        [shown, next].map(|identity| identity.certificate_pin().unwrap().to_string())
    }

    /// A `towline` command whose development certificate lives here.
    pub(crate) fn towline<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        self.towline_at(Path::new(env!("CARGO_BIN_EXE_towline")), args)
    }

    /// The same with a copy of the program.
    pub(crate) fn towline_at<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("TOWLINE_HOME", self.path("home"))
            .env_remove("RUST_LOG")
            .env_remove("SSLKEYLOGFILE")
            .env_remove("QLOGDIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ended {
        Running::start(self.towline(args)).wait()
    }

    /// Starts a listening command and waits until it listens.
    pub(crate) fn listen<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Server {
        Server::start(self.towline(args))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// The last record of a schema.
    pub(crate) fn record(&self, schema: &str) -> Value {
        records(&self.stdout)
            .rfind(|record| record["schema"] == schema)
            .unwrap_or_else(|| panic!("no {schema} in {self:?}"))
    }

    /// Fails the test unless the program ended with `code` and said `words`.
    pub(crate) fn expect(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(
                self.stderr.contains(word) || self.stdout.contains(word),
                "`{word}` missing in {self:?}"
            );
        }
        self
    }
}

fn records(text: &str) -> impl DoubleEndedIterator<Item = Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect::<Vec<_>>()
        .into_iter()
}

/// A program under way; killed when dropped.
pub(crate) struct Running {
    child: Child,
    started: Instant,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self {
            child: command.spawn().unwrap(),
            started: Instant::now(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its exit code, if it ends by itself so soon.
    pub(crate) fn ended_within(&mut self, time: Duration) -> Option<i32> {
        look_for(time, || self.child.try_wait().unwrap())?.code()
    }

    /// Waits, for a program whose output is no text.
    pub(crate) fn wait_bytes(mut self) -> Vec<u8> {
        let stderr = drain(self.child.stderr.take());
        let mut bytes = Vec::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            let _ = stdout.read_to_end(&mut bytes);
        }
        wait_for(&mut self.child);
        let _ = stderr.join();
        bytes
    }

    pub(crate) fn wait(mut self) -> Ended {
        let stdout = drain(self.child.stdout.take());
        let stderr = drain(self.child.stderr.take());
        let status = wait_for(&mut self.child);
        Ended {
            code: status.code(),
            stdout: stdout.join().unwrap(),
            stderr: stderr.join().unwrap(),
            took: self.started.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn wait_for(child: &mut Child) -> ExitStatus {
    look_for(LIMIT, || child.try_wait().unwrap()).unwrap_or_else(|| {
        let _ = child.kill();
        panic!("the program hangs")
    })
}

/// A listening program; killed when dropped.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Option<std::thread::JoinHandle<String>>,
    started: Instant,
    pub(crate) address: String,
    pub(crate) url: String,
    /// Of `serve --web`.
    pub(crate) page: String,
    said: String,
}

impl Server {
    /// Starts a listening command and waits until it listens.
    pub(crate) fn start(mut command: Command) -> Self {
        command.arg("--json");
        let (mut server, listening) = Self::start_saying(command, "towline.listening/1")
            .unwrap_or_else(|why| panic!("{why}"));
        server.address = listening["address"].as_str().unwrap().to_owned();
        server.url = listening["url"].as_str().unwrap_or_default().to_owned();
        let page = listening["web"]["page"].as_str();
        server.page = page.unwrap_or_default().to_owned();
        server
    }

    /// Starts a command that prints records and waits for its first of `schema`; if it ends before,
    /// the error is what it said.
    pub(crate) fn start_saying(
        mut command: Command,
        schema: &str,
    ) -> Result<(Self, Value), String> {
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = drain(child.stderr.take());
        let mut server = Self {
            child,
            stdout,
            stderr: Some(stderr),
            started: Instant::now(),
            address: String::new(),
            url: String::new(),
            page: String::new(),
            said: String::new(),
        };
        let record = server.next_record(schema)?;
        Ok((server, record))
    }

    /// Waits for the next record of a schema.
    pub(crate) fn record(&mut self, schema: &str) -> Value {
        self.next_record(schema)
            .unwrap_or_else(|why| panic!("the server ended: {why}"))
    }

    fn next_record(&mut self, schema: &str) -> Result<Value, String> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).unwrap() == 0 {
                let stderr = self.stderr.take().map(|stderr| stderr.join().unwrap());
                return Err(stderr.unwrap_or_default());
            }
            self.said.push_str(&line);
            match serde_json::from_str::<Value>(&line) {
                Ok(record) if record["schema"] == schema => return Ok(record),
                _ => {}
            }
        }
    }

    /// What the page of `serve --web` is told: the pins of the certificates of now and next.
    pub(crate) fn pins(&self) -> Vec<String> {
        let about = http_get(&self.page, "/towline.json");
        let (_, about) = about.split_once("\r\n\r\n").unwrap();
        let about: Value = serde_json::from_str(about).unwrap();
        let pins = about["pins"].as_array().unwrap().iter();
        pins.map(|pin| pin.as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The URL with a path.
    pub(crate) fn url_of(&self, path: &str) -> String {
        self.url.replacen("/#", &format!("/{path}#"), 1)
    }

    /// The URL with the port of another address.
    pub(crate) fn url_through(&self, relay: &Server) -> String {
        self.url.replacen(&self.address, &relay.address, 1)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(mut self) -> Ended {
        let mut rest = String::new();
        let _ = self.stdout.read_to_string(&mut rest);
        self.said.push_str(&rest);
        let status = wait_for(&mut self.child);
        Ended {
            code: status.code(),
            stdout: std::mem::take(&mut self.said),
            stderr: self
                .stderr
                .take()
                .map(|stderr| stderr.join().unwrap())
                .unwrap_or_default(),
            took: self.started.elapsed(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is at a path of a page's server, with its head.
pub(crate) fn http_get(page: &str, path: &str) -> String {
    let address = page.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until `done`, or fails the test.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let waited = look_for(Duration::from_secs(30), || done().then_some(()));
    assert!(waited.is_some(), "waiting for {what}");
}

/// Looks again and again until there is something, for so long at the most.
fn look_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut waited = Duration::ZERO;
    let mut before = Instant::now();
    loop {
        let found = look();
        if found.is_some() || waited >= limit {
            return found;
        }
        std::thread::sleep(STEP);
        let now = Instant::now();
        waited += (now - before).min(LONGEST_STEP);
        before = now;
    }
}

/// Bytes in the part file of a destination, if there is one.
pub(crate) fn part_bytes(destination: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(destination.join(".towline-part")) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "part")
        })
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}
