//! Which sockets processes have open, by /proc.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The sockets of some processes.
#[derive(Debug, Default)]
pub(super) struct OpenSockets {
    /// By number.
    pub(super) sockets: HashSet<u64>,
    /// What /proc says of those that nobody knows.
    unknown: Vec<PathBuf>,
}

impl OpenSockets {
    /// Whether descriptors wait in a Unix socket to be received (Linux 5.6).
    pub(super) fn are_some_on_their_way(&self) -> bool {
        self.unknown.iter().any(|file| {
            let text = match there(fs::read_to_string(file)) {
                Ok(text) => text.unwrap_or_default(),
                // There may be.
                Err(_) => return true,
            };
            let count = text.lines().find_map(|line| line.strip_prefix("scm_fds:"));
            count.is_some_and(|count| count.trim() != "0")
        })
    }
}

/// The number by which /proc names a socket.
pub(super) fn inode(socket: &impl AsFd) -> io::Result<u64> {
    let path = format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd());
    Ok(fs::metadata(path)?.ino())
}

/// The sockets that these processes have open. An error if one, which it names, does not let us look.
pub(super) fn open_sockets(
    processes: &[i32],
    is_known: impl Fn(u64) -> bool,
) -> Result<OpenSockets, (i32, io::Error)> {
    let mut open = OpenSockets::default();
    for process in processes {
        open.add_process(*process, &is_known)
            .map_err(|error| (*process, error))?;
    }
    Ok(open)
}

impl OpenSockets {
    fn add_process(&mut self, process: i32, is_known: impl Fn(u64) -> bool) -> io::Result<()> {
        let folder = PathBuf::from(format!("/proc/{process}"));
        if self.add(&folder, &is_known)? {
            return Ok(());
        }
        // Its first thread may have ended, and others go on.
        for thread in entries(&folder.join("task"))? {
            self.add(&thread, &is_known)?;
        }
        Ok(())
    }

    /// Adds those of the process or thread of this folder; whether it has any descriptors.
    fn add(&mut self, folder: &Path, is_known: impl Fn(u64) -> bool) -> io::Result<bool> {
        let descriptors = entries(&folder.join("fd"))?;
        for descriptor in &descriptors {
            let Some(target) = there(fs::read_link(descriptor))? else {
                continue;
            };
            let number = target.to_str().and_then(|text| {
                let number = text.strip_prefix("socket:[")?.strip_suffix(']')?;
                number.parse().ok()
            });
            let Some(number) = number else {
                continue;
            };
            self.sockets.insert(number);
            if let (false, Some(name)) = (is_known(number), descriptor.file_name()) {
                self.unknown.push(folder.join("fdinfo").join(name));
            }
        }
        Ok(!descriptors.is_empty())
    }
}

/// What is in a folder; nothing in one that is not there.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(entries) = there(fs::read_dir(folder))? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(there(entry)?.map(|entry| entry.path()));
    }
    Ok(found)
}

/// `None` of what has gone meanwhile.
fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}
