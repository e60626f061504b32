//! One run: a case between one client and one server.
//!
//! 1. start the server, read its address;
//! 2. put the case's path between the two;
//! 3. run the client to its end or to the case's time limit;
//! 4. compare every file byte for byte;
//! 5. check the evidence: both drivers' summaries and what the path saw.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use interop_contract::{RELIABLE, Summary};

use crate::Error;
use crate::drivers::{Fleet, Stack};
use crate::material::{self, Material, Sample};
use crate::path::Between;
use crate::process::Process;

const TIME_LIMIT: Duration = Duration::from_secs(30);
const START_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(5);
const CHACHA20: &str = "TLS_CHACHA20_POLY1305_SHA256";

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// A small file over a new connection.
    Handshake,
    /// 10 MB and small files, on concurrent streams.
    Transfer,
    /// Both sides offer ChaCha20-Poly1305 only.
    ChaCha20,
    /// The server demands a validated address.
    Retry,
    /// The client begins a key update during the transfer.
    KeyUpdate,
    /// 2 % loss and 5 ms each way.
    Loss,
    /// A NAT before the client that takes another port each second.
    RebindPort,
    /// A NAT before the client that takes another address each second.
    RebindAddress,
    /// The client moves to another local port.
    Migration,
    /// Over IPv6.
    Ipv6,
    /// Two connections, the second over a resumed session.
    Resumption,
    /// Packets are ECN-capable and the counts come back.
    Ecn,
    /// The server gives its answer up after the first bytes, which arrive all the same.
    ResetStreamAt,
}

/// A client, a server and what is tried between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// The case.
    pub(crate) case: Case,
    /// Who connects.
    pub(crate) client: Stack,
    /// Who listens.
    pub(crate) server: Stack,
}

/// A run that passed.
#[derive(Debug, Clone)]
pub(crate) struct Passed {
    /// From the client's start to its end.
    pub(crate) took: Duration,
    /// What the client's driver said.
    pub(crate) client: Summary,
    /// What the server's driver said; `None` if the close was lost on the way.
    pub(crate) server: Option<Summary>,
    /// What the path saw, in words.
    pub(crate) path: Option<String>,
}

impl Case {
    /// Every case, in the order they are run.
    pub(crate) const ALL: [Case; 13] = [
        Case::Handshake,
        Case::Transfer,
        Case::ChaCha20,
        Case::Retry,
        Case::KeyUpdate,
        Case::Loss,
        Case::RebindPort,
        Case::RebindAddress,
        Case::Migration,
        Case::Ipv6,
        Case::Resumption,
        Case::Ecn,
        Case::ResetStreamAt,
    ];

    /// The name in options and reports; the QUIC interop runner's where it has one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::Handshake => "handshake",
            Case::Transfer => "transfer",
            Case::ChaCha20 => "chacha20",
            Case::Retry => "retry",
            Case::KeyUpdate => "keyupdate",
            Case::Loss => "loss",
            Case::RebindPort => "rebind-port",
            Case::RebindAddress => "rebind-addr",
            Case::Migration => "connectionmigration",
            Case::Ipv6 => "ipv6",
            Case::Resumption => "resumption",
            Case::Ecn => "ecn",
            Case::ResetStreamAt => "reset-stream-at",
        }
    }

    fn files(self) -> &'static [Sample] {
        match self {
            Case::Handshake => &[material::SMALL],
            Case::Transfer => &[
                material::HUGE,
                material::MEDIUM,
                material::EMPTY,
                material::SMALL,
            ],
            Case::ChaCha20 | Case::KeyUpdate | Case::Ecn => &[material::LARGER],
            Case::Retry | Case::Ipv6 => &[material::MEDIUM],
            Case::RebindPort | Case::RebindAddress => &[material::HUGE],
            Case::Migration => &[material::HUGE],
            Case::Resumption => &[material::SMALL, material::MEDIUM],
            Case::Loss => &[material::LARGE, material::SMALL],
            Case::ResetStreamAt => &[material::LARGE],
        }
    }

    /// Whether the path loses datagrams, which may be the connection's last one.
    fn loses(self) -> bool {
        matches!(self, Case::Loss | Case::ResetStreamAt)
    }

    fn server_flags(self) -> &'static [&'static str] {
        match self {
            Case::ChaCha20 => &["--chacha20"],
            Case::Retry => &["--retry"],
            Case::ResetStreamAt => &["--reset-at"],
            _ => &[],
        }
    }

    fn client_flags(self) -> &'static [&'static str] {
        match self {
            Case::ChaCha20 => &["--chacha20"],
            Case::Retry => &["--expect-retry"],
            Case::KeyUpdate => &["--key-update"],
            Case::Migration => &["--migrate"],
            Case::Resumption => &["--resume"],
            Case::ResetStreamAt => &["--expect-reset"],
            _ => &[],
        }
    }
}

impl Run {
    /// Why this pair cannot play the case, if it cannot.
    pub(crate) fn cannot(&self) -> Option<&'static str> {
        let ends = [self.client, self.server];
        match self.case {
            Case::Resumption if ends == [Stack::Quinn; 2] => {
                Some("quinn has no call that tells whether a session was resumed")
            }
            Case::Ecn if ends.contains(&Stack::Aioquic) => Some("aioquic knows no ECN"),
            Case::Ecn if !ends.contains(&Stack::Towline) => {
                Some("of these stacks only Towline tells whether ECN worked")
            }
            Case::ResetStreamAt if ends.contains(&Stack::Aioquic) => {
                Some("aioquic knows no RESET_STREAM_AT")
            }
            Case::ResetStreamAt if ends.contains(&Stack::Quinn) => {
                Some("quinn knows no RESET_STREAM_AT")
            }
            _ => None,
        }
    }

    /// Name of the run's folder.
    pub(crate) fn folder(&self) -> String {
        let (case, client, server) = (self.case.name(), self.client.name(), self.server.name());
        format!("{case}_{client}_{server}")
    }

    /// Runs it in `folder`, which is emptied first. The error says what went
    /// wrong and ends with what the drivers wrote.
    pub(crate) fn execute(
        &self,
        fleet: &Fleet,
        material: &Material,
        folder: &Path,
    ) -> Result<Passed, Error> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let out = folder.join("out");
        fs::create_dir_all(&out)?;
        let logs = [folder.join("client.log"), folder.join("server.log")];
        self.attempt(fleet, material, &out, &logs)
            .map_err(|error| format!("{error}{}", tail(&logs)).into())
    }

    fn attempt(
        &self,
        fleet: &Fleet,
        material: &Material,
        out: &Path,
        [client_log, server_log]: &[PathBuf; 2],
    ) -> Result<Passed, Error> {
        let mut command = fleet.get(self.server).command()?;
        let listen = match self.case {
            Case::Ipv6 => "[::1]:0",
            _ => "127.0.0.1:0",
        };
        command.args(["server", "--listen", listen, "--cert"]);
        command.arg(&material.cert).arg("--key").arg(&material.key);
        command.arg("--root").arg(&material.root);
        command.args(self.case.server_flags());
        let mut server = Process::start(command, server_log)?;
        let address = server
            .line("listening ", Instant::now() + START_LIMIT)
            .ok_or("the server printed no `listening` line")?
            .parse()?;

        let between = match self.case {
            Case::Retry => Between::witness(address)?,
            Case::Loss | Case::ResetStreamAt => Between::lossy(address)?,
            Case::RebindPort => Between::nat(address, "port")?,
            Case::RebindAddress => Between::nat(address, "address")?,
            Case::Migration => Between::slow(address)?,
            _ => Between::nothing(address),
        };

        let mut command = fleet.get(self.client).command()?;
        self.client_arguments(&mut command, &between, material, out);
        let started = Instant::now();
        let mut client = Process::start(command, client_log)?;
        let status = client.wait(started + TIME_LIMIT)?.ok_or_else(|| {
            let seconds = TIME_LIMIT.as_secs();
            format!("the client was not done after {seconds} s")
        })?;
        let took = started.elapsed();
        let client_summary = client
            .line("", Instant::now() + END_LIMIT)
            .and_then(|line| Summary::from_json(&line))
            .ok_or_else(|| format!("the client ended with {status} and no summary"))?;
        if !status.success() || !client_summary.ok {
            let why = client_summary.error.unwrap_or_default();
            return Err(format!("the client ended with {status}: {why}").into());
        }
        for sample in self.case.files() {
            let compare = match self.case {
                Case::ResetStreamAt => compare_beginning,
                _ => compare,
            };
            compare(&material.root.join(sample.name), &out.join(sample.name))?;
        }
        // A lost CONNECTION_CLOSE leaves the server waiting for its idle timeout.
        let patience = match self.case {
            _ if self.case.loses() => Duration::from_millis(500),
            _ => END_LIMIT,
        };
        let connections = match self.case {
            Case::Resumption => 2,
            _ => 1,
        };
        let deadline = Instant::now() + patience;
        let mut summaries = Vec::new();
        for _ in 0..connections {
            let line = server.line("connection ", deadline);
            summaries.extend(line.and_then(|line| Summary::from_json(&line)));
        }
        // They come as they end, so the resumed one is the second most often, not always.
        let server_summary = (summaries.len() == connections).then(|| {
            let resumed = summaries.iter().find(|s| s.resumed == Some(true));
            resumed.or(summaries.last()).cloned()
        });
        let server_summary = server_summary.flatten();
        server.close_input();
        if server.wait(Instant::now() + END_LIMIT)?.is_none() {
            return Err("the server went on after its input was closed".into());
        }
        let passed = Passed {
            took,
            client: client_summary,
            server: server_summary,
            path: between.finish(),
        };
        self.check(&passed)?;
        Ok(passed)
    }

    fn client_arguments(
        &self,
        command: &mut Command,
        between: &Between,
        material: &Material,
        out: &Path,
    ) {
        command
            .arg("client")
            .arg("--addr")
            .arg(between.address().to_string());
        command.arg("--ca").arg(&material.ca);
        command
            .args(["--server-name", "localhost", "--out"])
            .arg(out);
        command.args(self.case.client_flags());
        command.args(
            self.case
                .files()
                .iter()
                .map(|file| format!("/{}", file.name)),
        );
    }

    /// Whether what the case is about took place.
    fn check(&self, passed: &Passed) -> Result<(), Error> {
        let client = &passed.client;
        let length: usize = self.case.files().iter().map(|file| file.length).sum();
        if client.bytes != length as u64 && self.case != Case::ResetStreamAt {
            let told = client.bytes;
            return Err(format!("the client says {told} bytes instead of {length}").into());
        }
        let Some(server) = &passed.server else {
            if self.case.loses() {
                return Ok(());
            }
            return Err("the server printed no `connection` line after the close".into());
        };
        if !server.ok {
            let why = server.error.as_deref().unwrap_or_default();
            return Err(format!("the server saw no clean close: {why}").into());
        }
        for (role, summary) in [("client", client), ("server", server)] {
            match self.case {
                Case::ChaCha20 if summary.cipher != CHACHA20 => {
                    let cipher = &summary.cipher;
                    return Err(format!("the {role} used {cipher:?}, not ChaCha20").into());
                }
                Case::Retry if summary.retried == Some(false) => {
                    return Err(format!("the {role} saw no Retry").into());
                }
                Case::KeyUpdate if summary.key_updates.unwrap_or(0) == 0 => {
                    return Err(format!("the {role} saw no key update").into());
                }
                _ => {}
            }
        }
        self.check_later_cases(client, server)?;
        // quic-go begins its updates by itself, or answers a faster server's.
        let may_answer = self.client == Stack::QuicGo;
        if self.case == Case::KeyUpdate && !may_answer && client.key_updates_begun == Some(0) {
            return Err("the client began no key update".into());
        }
        match (self.case, &passed.path) {
            (Case::Retry | Case::RebindPort | Case::RebindAddress, None) => {
                Err(format!("the path saw no sign of {}", self.case.name()).into())
            }
            (case, None) if case.loses() => Err("the path lost nothing".into()),
            _ => Ok(()),
        }
    }
}

impl Run {
    /// Migration, resumption and ECN, by what the ends say of them.
    fn check_later_cases(&self, client: &Summary, server: &Summary) -> Result<(), Error> {
        let moves = [Case::RebindPort, Case::RebindAddress, Case::Migration];
        if moves.contains(&self.case) && server.moved == Some(false) {
            return Err("the server never saw another address of the client".into());
        }
        if self.case == Case::Resumption {
            let told = [client.resumed, server.resumed];
            if told.contains(&Some(false)) || !told.contains(&Some(true)) {
                return Err(format!("the session was not resumed: {told:?}").into());
            }
        }
        if self.case == Case::Ecn {
            let told = [client.ecn, server.ecn];
            if told.contains(&Some(false)) || !told.contains(&Some(true)) {
                return Err(format!("ECN did not prove itself: {told:?}").into());
            }
        }
        if self.case == Case::ResetStreamAt {
            let told = [client.reliable_size, server.reliable_size];
            if told.iter().flatten().any(|size| *size != RELIABLE) || told == [None, None] {
                return Err(format!("no RESET_STREAM_AT of {RELIABLE} bytes: {told:?}").into());
            }
        }
        Ok(())
    }
}

/// What a server delivers before it gives an answer up: at least `RELIABLE` bytes, and not all.
fn compare_beginning(wanted: &Path, got: &Path) -> Result<(), Error> {
    let name = got.display();
    let a = fs::read(wanted)?;
    let b = fs::read(got).map_err(|error| format!("{name}: {error}"))?;
    let (la, lb) = (a.len(), b.len());
    if !a.starts_with(&b) {
        return Err(format!("{name} is no beginning of what was asked for").into());
    }
    match RELIABLE <= lb as u64 && lb < la {
        true => Ok(()),
        false => Err(format!("{name} has {lb} bytes, wanted {RELIABLE} of {la}").into()),
    }
}

fn compare(wanted: &Path, got: &Path) -> Result<(), Error> {
    let name = got.display();
    let a = fs::read(wanted)?;
    let b = fs::read(got).map_err(|error| format!("{name}: {error}"))?;
    if a == b {
        return Ok(());
    }
    let at = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (la, lb) = (a.len(), b.len());
    Err(format!("{name} differs from byte {at} on ({lb} bytes, wanted {la})").into())
}

/// The last lines of the drivers' logs, ready to be appended to an error.
fn tail(logs: &[PathBuf]) -> String {
    let mut text = String::new();
    for log in logs {
        let bytes = fs::read(log).unwrap_or_default();
        let content = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = content.lines().collect();
        for line in &lines[lines.len().saturating_sub(5)..] {
            let name = log.file_stem().unwrap_or_default().to_string_lossy();
            text.push_str(&format!("\n      {name}: {line}"));
        }
    }
    text
}
