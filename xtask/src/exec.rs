//! Runs other programs: inherited, captured, or echoed line by line while someone reads along.
//!
//! Called by every command. It never decides what a failure means; it reports it as a sentence.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use crate::Outcome;

/// The workspace's root folder: cargo's word of this run, since a build that is shared between checkouts may be
/// another one's.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    Path::new(&here.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// `cargo` as this helper was started by, in the workspace's root.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// What cargo says of the workspace itself.
pub(crate) fn metadata() -> Outcome<Value> {
    let said = capture(&mut cargo([
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--locked",
    ]))?;
    serde_json::from_str(&said).map_err(|error| format!("cargo metadata: {error}"))
}

/// Where cargo puts what it builds: `target/`, unless the environment or a config says otherwise.
pub(crate) fn target() -> Outcome<PathBuf> {
    metadata()?["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata names no target directory".to_owned())
}

/// Any other program, in the workspace's root.
pub(crate) fn program<I, S>(name: &str, arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    command
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(name)
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs with inherited output.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command
        .status()
        .map_err(|error| format!("`{}` did not start: {error}", shown(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {status}", shown(command)))
    }
}

/// Runs with captured standard output; standard error is inherited.
pub(crate) fn capture(command: &mut Command) -> Outcome<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{}` did not start: {error}", shown(command)))?;
    if !output.status.success() {
        return Err(format!("`{}` ended with {}", shown(command), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{}` printed no UTF-8", shown(command)))
}

/// Runs, echoing each line of both outputs as it comes and handing it to `on_line`.
///
/// Lines keep their order within one output; between the two it is the order of arrival.
pub(crate) fn run_reading(command: &mut Command, mut on_line: impl FnMut(&str)) -> Outcome {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`{}` did not start: {error}", shown(command)))?;
    let (sender, lines) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        forward(output, false, sender.clone());
    }
    if let Some(output) = child.stderr.take() {
        forward(output, true, sender.clone());
    }
    drop(sender);
    for (is_error, line) in lines {
        if is_error {
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
        on_line(&line);
    }
    let status = child
        .wait()
        .map_err(|error| format!("`{}` could not be waited for: {error}", shown(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {status}", shown(command)))
    }
}

fn forward(
    output: impl Read + Send + 'static,
    is_error: bool,
    sender: mpsc::Sender<(bool, String)>,
) {
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line)
                .trim_end_matches(['\n', '\r'])
                .to_owned();
            line.clear();
            if sender.send((is_error, text)).is_err() {
                return;
            }
        }
    });
}

/// Where a program would be found on `PATH`.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// All files under `folder` whose name ends in `.extension`, sorted, skipping build output.
pub(crate) fn files_under(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir()
                && !matches!(name.as_ref(), "target" | "node_modules" | ".venv" | ".git")
            {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// `path` as written in the repository: relative to its root, with forward slashes.
pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .to_string_lossy()
        .replace('\\', "/")
}
