//! Files to scenarios: reads them and the traces they name, and says where a mistake stands.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use towline_lab::scenario::ScenarioText;

use crate::exit::{Exit, Failure};

/// Longest file, bytes; more is no scenario and no trace.
const MAX_FILE: u64 = 4 << 20;

/// A scenario, and what to call it.
pub(super) struct Input {
    pub(super) text: ScenarioText,
    /// As the user named the file.
    pub(super) file: String,
    /// For files made of it, without folders and ending.
    pub(super) stem: String,
}

/// Reads a scenario; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Input, Failure> {
    let file = path.display().to_string();
    let is_stdin = file == "-";
    let text = match is_stdin {
        true => read_text(io::stdin().lock()),
        false => File::open(path).and_then(read_text),
    };
    let text = text.map_err(|error| {
        Failure::new(Exit::Other, format!("{file}: {error}"))
            .next("give a scenario in TOML; docs/scenarios.md describes the format")
    })?;
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let stem = path.file_stem().filter(|_| !is_stdin);
    let stem = stem.map_or_else(
        || "scenario".to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    let mut text = ScenarioText::parse(&text, &|name| trace(&folder, name)).map_err(|error| {
        let place = format!("{file}:{}:{}", error.line, error.column);
        let what = match (error.key.as_str(), error.value.as_str()) {
            ("", _) => String::new(),
            (key, "") => format!("`{key}`: "),
            (key, value) => format!("`{key} = {value}`: "),
        };
        Failure::usage(format!("{place}: {what}{}", error.problem))
            .next("docs/scenarios.md lists every key with its unit")
    })?;
    if text.scenario.name.is_empty() {
        text.scenario.name = stem.clone();
    }
    Ok(Input { text, file, stem })
}

/// A trace beside the scenario.
fn trace(folder: &Path, name: &str) -> Result<String, String> {
    let path: PathBuf = folder.join(name);
    File::open(&path)
        .and_then(read_text)
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn read_text(file: impl Read) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_FILE {
        true => Err(io::Error::other(format!("longer than {MAX_FILE} bytes"))),
        false => Ok(text),
    }
}
