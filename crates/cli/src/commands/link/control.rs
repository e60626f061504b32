//! The socket at which a running link tells how it is: one line of JSON to each who connects.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::exit::{Exit, Failure};

/// How long the one who asks may take to read.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const MAX_ANSWER: u64 = 1 << 20;

/// Where links of this user tell how they are.
fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("towline"),
        None => PathBuf::from("/run/towline"),
    }
}

/// The socket of the link with this name.
pub(super) fn path_of(name: &str) -> PathBuf {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    folder().join(format!("link-{name}.sock"))
}

/// Answers; dropped, it takes the socket away.
pub(super) struct Control {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Control {
    /// Tells `report`'s newest value to whoever asks at `path`.
    pub(super) fn serve(path: PathBuf, report: watch::Receiver<Value>) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if let Ok(found) = std::fs::symlink_metadata(&path)
            && found.file_type().is_socket()
        {
            if std::os::unix::net::UnixStream::connect(&path).is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another link with this name runs; give this one another name",
                ));
            }
            // What a process that was killed has left.
            std::fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let task = tokio::spawn(async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else {
                    tokio::time::sleep(PATIENCE).await;
                    continue;
                };
                let mut line = report.borrow().to_string();
                line.push('\n');
                let told = stream.write_all(line.as_bytes());
                // One after the other: nobody who does not read keeps the others for long.
                let _ = tokio::time::timeout(PATIENCE, told).await;
            }
        });
        Ok(Self { path, task })
    }
}

/// The sockets that there are.
pub(super) fn all() -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder()) else {
        return Vec::new();
    };
    let paths = found.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("link-") && name.ends_with(".sock"))
        })
        .collect();
    paths.sort();
    paths
}

/// What the link at `path` tells.
pub(in crate::commands) async fn ask(path: &Path) -> Result<Value, Failure> {
    let asked = async {
        let mut stream = UnixStream::connect(path).await?;
        let mut text = String::new();
        (&mut stream)
            .take(MAX_ANSWER)
            .read_to_string(&mut text)
            .await?;
        serde_json::from_str(&text).map_err(io::Error::other)
    };
    let answer = tokio::time::timeout(PATIENCE, asked).await;
    let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    answer.map_err(|error| {
        Failure::new(Exit::Connect, format!("{}: {error}", path.display()))
            .next("start it with `towline link run FILE.toml`, as the same user")
    })
}
