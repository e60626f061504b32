//! Whether someone else's dissector understands what we send: tshark decrypts a capture with our
//! key log, finds STREAM frames and calls nothing malformed.
//!
//! A file crosses `serve → relay → relay → recv`; what is captured is the hop between the two
//! relays, where every datagram travels alone (segmentation offload shows whole trains as one
//! datagram on loopback). Part of `make test`; skipped by name where tshark is missing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::exec::{capture as output_of, cargo, program, run, target, which};
use crate::report::Skips;

/// Bytes of the file that crosses; a few thousand packets.
const FILE_BYTES: usize = 3_000_000;

/// How long tshark may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Captures before the step gives up: one with gaps says nothing about what was sent.
const ATTEMPTS: u32 = 5;

/// Packets that a failure shows.
const SHOWN: usize = 8;

/// MiB in which the kernel keeps packets for the capture; the whole transfer fits.
const BUFFER_MIB: &str = "32";

/// A child that does not outlive the step.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a child that is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the step; the closing line counts its three checks.
pub(crate) fn capture(skips: &mut Skips) -> Outcome<String> {
    if which("tshark").is_none() {
        skips.add("capture", "tshark is not installed (make setup-system)");
        return Ok("0 passed, 0 failed, 3 skipped".to_owned());
    }
    run(&mut cargo([
        "build",
        "--quiet",
        "--locked",
        "-p",
        "towline-cli",
    ]))?;
    let folder = target()?.join("capture");
    let mut attempts = 0;
    let port = loop {
        let port = record(&folder)?;
        attempts += 1;
        match dropped(&folder) {
            None => break port,
            Some(line) if attempts == ATTEMPTS => {
                return Err(format!("{ATTEMPTS} captures have gaps; the last: {line}"));
            }
            Some(line) => println!("captured again: {line}"),
        }
    };
    judge(&folder, &port)?;
    let closing = "3 passed, 0 failed".to_owned();
    println!("{closing}");
    Ok(closing)
}

/// Sends the file past tshark; returns the port of the captured hop.
fn record(folder: &Path) -> Outcome<String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder.join("root")).map_err(|e| format!("{}: {e}", folder.display()))?;
    let towline = target()?.join("debug/towline");
    let content: Vec<u8> = (0..FILE_BYTES as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let file = folder.join("root/file.bin");
    fs::write(&file, &content).map_err(|e| format!("{}: {e}", file.display()))?;
    let start = |arguments: &[&str]| -> Outcome<(Running, BufReader<ChildStdout>)> {
        let mut child = Command::new(&towline)
            .args(arguments)
            .env("TOWLINE_HOME", folder.join("home"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{}: {e}", towline.display()))?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok((Running(child), BufReader::new(output)))
    };
    let (_server, mut said) = start(&["serve", "--root", "root", "--listen", "127.0.0.1:0"])?;
    let address = listening(&mut said)?;
    let pin = loop {
        let line = next_line(&mut said)?;
        if let Some((_, rest)) = line.split_once("#sha256/") {
            break rest
                .chars()
                .take_while(char::is_ascii_alphanumeric)
                .collect::<String>();
        }
    };
    let (_inner, mut said) = start(&["relay", "127.0.0.1:0", &address])?;
    let hop = listening(&mut said)?;
    let (_outer, mut said) = start(&["relay", "127.0.0.1:0", &hop])?;
    let entrance = listening(&mut said)?;
    let port = hop.rsplit(':').next().unwrap_or_default().to_owned();
    let tshark = watch(folder, &port)?;
    let url = format!("towline://{entrance}/#sha256/{pin}");
    run(Command::new(&towline)
        .args(["recv", &url, "--out", "out", "--quiet"])
        .env("TOWLINE_HOME", folder.join("home"))
        .env("SSLKEYLOGFILE", folder.join("keys"))
        .current_dir(folder))?;
    stop(tshark)?;
    let got = fs::read(folder.join("out/file.bin")).map_err(|e| format!("the file: {e}"))?;
    if got != content {
        return Err("the file differs after the transfer".to_owned());
    }
    Ok(port)
}

/// Starts tshark and waits until it captures.
fn watch(folder: &Path, port: &str) -> Outcome<Running> {
    let log = folder.join("tshark.log");
    let errors = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let tshark = Command::new("tshark")
        .args(["-q", "-i", "lo", "-B", BUFFER_MIB])
        .args(["-f", &format!("udp port {port}"), "-w"])
        .arg(folder.join("capture.pcapng"))
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map(Running)
        .map_err(|e| format!("tshark: {e}"))?;
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&log)
        .unwrap_or_default()
        .contains("Capturing on")
    {
        if Instant::now() > deadline {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("tshark does not capture: {}", said.trim()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // The line comes a moment before the first packet is taken.
    std::thread::sleep(Duration::from_millis(500));
    Ok(tshark)
}

/// Lets tshark write out what it holds and end.
fn stop(mut tshark: Running) -> Outcome {
    std::thread::sleep(Duration::from_millis(500));
    run(&mut program("kill", ["-INT", &tshark.0.id().to_string()]))?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if tshark.0.try_wait().map_err(|e| e.to_string())?.is_some() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err("tshark did not end".to_owned())
}

/// What tshark said of packets that it was too slow for, if there were any.
fn dropped(folder: &Path) -> Option<String> {
    let said = fs::read_to_string(folder.join("tshark.log")).unwrap_or_default();
    let mut lines = said.lines();
    lines.find(|l| l.contains(" dropped")).map(str::to_owned)
}

/// Reads the capture back three times: everything sound, the handshake, the streams.
fn judge(folder: &Path, port: &str) -> Outcome {
    let packets = |filter: &str| -> Outcome<Vec<String>> {
        let keys: PathBuf = folder.join("keys");
        let text = output_of(
            Command::new("tshark")
                .arg("-r")
                .arg(folder.join("capture.pcapng"))
                .arg("-o")
                .arg(format!("tls.keylog_file:{}", keys.display()))
                .args(["-d", &format!("udp.port=={port},quic"), "-Y", filter])
                .stderr(Stdio::null()),
        )?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    // While no answer comes, `recv` asks with datagrams of one byte whether anybody listens.
    let unsound = packets(
        "udp.length > 9 && \
         (_ws.malformed || quic.decryption_failed || _ws.expert.severity == error)",
    )?;
    if !unsound.is_empty() {
        return Err(format!(
            "tshark calls {} packets malformed or cannot decrypt them (kept in {}):\n{}",
            unsound.len(),
            folder.display(),
            unsound[..unsound.len().min(SHOWN)].join("\n")
        ));
    }
    let hellos = packets("tls.handshake.type == 1 || tls.handshake.type == 20")?.len();
    if hellos < 2 {
        return Err("tshark found no ClientHello and Finished".to_owned());
    }
    let streams = packets("quic.stream.stream_id")?.len();
    let least = FILE_BYTES / 1500;
    if streams < least {
        return Err(format!(
            "tshark found {streams} packets with STREAM frames, not {least}"
        ));
    }
    println!("tshark: {streams} packets with STREAM frames decrypted, none malformed");
    Ok(())
}

fn listening(said: &mut impl BufRead) -> Outcome<String> {
    loop {
        let line = next_line(said)?;
        if let Some(rest) = line.strip_prefix("listening ") {
            return Ok(rest
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned());
        }
    }
}

fn next_line(said: &mut impl BufRead) -> Outcome<String> {
    let mut line = String::new();
    match said.read_line(&mut line) {
        Ok(0) => Err("towline ended before it said where it listens".to_owned()),
        Ok(_) => Ok(line.trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
