//! A small file that says which records a log has, for logs that cannot say it themselves.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::promise::SinkError;
use crate::{Ranges, Stream};

/// Cap: bytes of a state file that are read.
pub(crate) const MAX_STATE_BYTES: u64 = 4 << 20;

/// A name in which every character but letters, digits, `-` and `_` is a percent sign and its byte: two names
/// stay two, and none leaves the directory or makes two subjects.
pub(super) fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The state of one stream.
#[derive(Clone, Debug)]
pub(super) struct State {
    path: PathBuf,
}

impl State {
    pub(super) fn new(directory: &Path, stream: &Stream) -> Self {
        let name = format!("{}-{:016x}.ranges", escaped(&stream.name), stream.id);
        Self {
            path: directory.join(name),
        }
    }

    /// What it says; nothing if there is none. Blocks.
    pub(super) fn load(&self) -> Result<Ranges, SinkError> {
        let failed = |what: String| {
            let path = self.path.display();
            SinkError::permanent(format!("the state {path} cannot be read: {what}"))
        };
        let mut text = String::new();
        match File::open(&self.path) {
            Ok(file) => {
                let read = file.take(MAX_STATE_BYTES + 1).read_to_string(&mut text);
                read.map_err(|error| failed(error.to_string()))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ranges::default()),
            Err(error) => return Err(failed(error.to_string())),
        }
        if text.len() as u64 > MAX_STATE_BYTES {
            return Err(failed(format!("it has more than {MAX_STATE_BYTES} bytes")));
        }
        let mut ranges = Ranges::default();
        for line in text.lines() {
            let range = line.split_once(' ');
            let range = range.and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
            ranges.insert(range.ok_or_else(|| {
                failed(format!(
                    "{line:?} is no range; delete it, and records come once more"
                ))
            })?);
        }
        Ok(ranges)
    }

    /// Replaces it, so that after a crash it is either the old one or the new one. Blocks.
    pub(super) fn store(&self, ranges: &Ranges) -> Result<(), SinkError> {
        let lines = ranges.iter();
        let text: String = lines
            .map(|range| format!("{} {}\n", range.start, range.end))
            .collect();
        let stored = || {
            let folder = self.path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let new = self.path.with_extension("new");
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            File::open(folder)?.sync_all()
        };
        stored().map_err(|error: std::io::Error| {
            let path = self.path.display();
            SinkError::passing(format!("the state {path} cannot be written: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("towline-gateway-state-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn names_stay_apart_and_within_the_folder() {
        assert_eq!(escaped("Boat_1-a"), "Boat_1-a");
        assert_eq!(escaped("../a.b*ö"), "%2E%2E%2Fa%2Eb%2A%C3%B6");
        assert_ne!(escaped("a%2E"), escaped("a."));
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let folder = folder("round");
        let stream = Stream {
            name: "a/b".to_owned(),
            id: u64::MAX,
        };
        let state = State::new(&folder, &stream);
        assert_eq!(state.load().unwrap(), Ranges::default());
        let ranges: Ranges = [0, 1, 5, u64::MAX - 1].into_iter().collect();
        state.store(&ranges).unwrap();
        assert_eq!(state.load().unwrap(), ranges);
        fs::write(&state.path, "0 7\n9").unwrap();
        let error = state.load().unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("no range"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_state_that_is_far_too_large_is_refused() {
        let folder = folder("large");
        let stream = Stream {
            name: "a".to_owned(),
            id: 1,
        };
        let state = State::new(&folder, &stream);
        fs::write(
            &state.path,
            "0 1\n".repeat(1 + MAX_STATE_BYTES as usize / 4),
        )
        .unwrap();
        assert!(state.load().unwrap_err().to_string().contains("more than"));
        fs::remove_dir_all(folder).unwrap();
    }
}
