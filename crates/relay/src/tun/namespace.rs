//! Network namespaces by name: made, removed, entered. Names are those of `ip netns`.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;

use super::error::TunError;
use super::ip::ip;

/// Where `ip netns` keeps its handles.
const FOLDER: &str = "/var/run/netns";

/// A namespace that was made here and goes with its owner.
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn create(name: &str) -> Result<Self, TunError> {
        ip(&["netns", "add", name])?;
        let made = Self(name.to_owned());
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(made)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "del", &self.0]) {
            tracing::warn!(namespace = self.0, %error, "a network namespace stays behind");
        }
    }
}

/// Runs `work` on a thread of its own inside the namespace `name` and waits for it. Sockets that it
/// opens belong to that namespace wherever they are used later.
///
/// # Errors
/// There is no such namespace, or the process may not enter it.
///
/// # Panics
/// If `work` does.
pub fn in_namespace<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, TunError> {
    check_name(name)?;
    let file = File::open(path(name)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => TunError::NoSuchNamespace {
            name: name.to_owned(),
        },
        _ => TunError::of(format!("opening the namespace `{name}`"), error),
    })?;
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(&file)
                .map_err(|error| TunError::of(format!("entering the namespace `{name}`"), error))?;
            Ok(work())
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Refuses what would be another path than a file in the folder, or an option of `ip`.
pub(super) fn check_name(name: &str) -> Result<(), TunError> {
    let is_file_name = (1..=255).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && !name.contains(['/', '\0']);
    if is_file_name {
        Ok(())
    } else {
        Err(TunError::Name {
            name: name.to_owned(),
        })
    }
}

pub(super) fn exists(name: &str) -> bool {
    path(name).exists()
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Moves the calling thread, and it alone, into a namespace.
fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: setns takes a descriptor, which is open for the whole call, and no memory.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
