//! A cgroup (version 2) for one run: every process of the program is in it, and stays in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Where nft looks for cgroups.
const SYSFS: &str = "/sys/fs/cgroup";

/// Names of our cgroups and tables begin so; the process's number follows.
pub(crate) const PREFIX: &str = "towline-stcp-";

/// The BPF file system, where what changes `socket()` is kept.
const BPF: &str = "/sys/fs/bpf";

/// Where this process keeps it.
pub(crate) fn pin_path() -> PathBuf {
    Path::new(BPF).join(format!("{PREFIX}{}", std::process::id()))
}

/// A cgroup, removed by [`Cgroup::remove`].
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// As nft wants it: below /sys/fs/cgroup.
    nft_path: String,
}

/// Where version 2 is mounted, if where nft can find it.
pub(crate) fn mount() -> Result<PathBuf, String> {
    let text = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    find_mount(&text).ok_or_else(|| {
        format!(
            "no cgroup version 2 is mounted below {SYSFS} \
             (inside `ip netns exec` it is hidden: use `nsenter --net=/run/netns/NAME`)"
        )
    })
}

/// Fields of mountinfo: id, parent, device, root, mount point, options, …, `-`, type, ….
fn find_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let is_ours = after.starts_with("cgroup2 ") && root == "/";
        (is_ours && Path::new(point).starts_with(SYSFS)).then(|| PathBuf::from(point))
    })
}

impl Cgroup {
    /// Makes a cgroup with the number of this process in its name, in the place of one that a killed
    /// run with the same number left.
    pub fn create() -> Result<Self, String> {
        let mount = mount()?;
        let path = mount.join(format!("{PREFIX}{}", std::process::id()));
        let made = match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if is_populated(&path) {
                    return Err(format!(
                        "programs of another run with our number are there; if it was killed, end them: {}",
                        removal(&path)
                    ));
                }
                remove_tree(&path).and_then(|()| fs::create_dir(&path))
            }
            made => made,
        };
        made.map_err(|error| format!("{}: {error}", path.display()))?;
        let nft_path = path
            .strip_prefix(SYSFS)
            .unwrap_or(&path)
            .display()
            .to_string();
        Ok(Self { path, nft_path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn nft_path(&self) -> &str {
        &self.nft_path
    }

    /// Whether processes are in it, or in cgroups below it.
    pub(crate) fn is_populated(&self) -> bool {
        is_populated(&self.path)
    }

    /// A signal to every process in it, but not to those in cgroups below.
    pub(crate) fn signal_all(&self, signal: Signal) -> io::Result<()> {
        for line in fs::read_to_string(self.path.join("cgroup.procs"))?.lines() {
            if let Some(pid) = line.parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        }
        Ok(())
    }

    /// SIGKILL to every process in it, at once.
    fn kill(&self) -> io::Result<()> {
        let kill = self.path.join("cgroup.kill");
        if kill.exists() {
            return fs::write(kill, "1");
        }
        // Linux before 5.14. Whatever forks meanwhile is met in the next round.
        self.signal_all(Signal::KILL)
    }

    /// Ends every process in it; when this returns well, none is left.
    pub(crate) async fn end_all(&self) -> Result<(), String> {
        for _ in 0..500 {
            if !self.is_populated() {
                return Ok(());
            }
            self.kill()
                .map_err(|error| format!("{}: {error}", self.path.display()))?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(format!("processes in {} do not end", self.path.display()))
    }

    /// Removes it; its guard goes with it. Only when it is empty.
    pub fn remove(self) -> Result<(), String> {
        remove_tree(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Where it cannot be told, for want of descriptors say, somebody may be there.
fn is_populated(cgroup: &Path) -> bool {
    match fs::read_to_string(cgroup.join("cgroup.events")) {
        Ok(events) => events.lines().any(|line| line == "populated 1"),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The command that ends what is in a cgroup, and removes it.
pub(crate) fn removal(cgroup: &Path) -> String {
    let path = cgroup.display();
    format!("echo 1 > {path}/cgroup.kill; sleep 1; rmdir {path}")
}

/// A cgroup and those that a program made below it.
fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Cgroups of runs whose process is gone.
pub(crate) fn left_over() -> Vec<PathBuf> {
    mount()
        .map(|mount| left_over_in(&mount))
        .unwrap_or_default()
}

/// Pins of such runs.
pub(crate) fn left_over_pins() -> Vec<PathBuf> {
    left_over_in(Path::new(BPF))
}

fn left_over_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_left_over))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Whether a name is ours and of a process that is gone.
pub(crate) fn is_left_over(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(|pid| pid.parse::<u32>().ok())
        .is_some_and(|pid| !is_towline(pid))
}

/// Numbers of processes are used again, so the program counts as well.
fn is_towline(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split('\0').any(|word| word == "stcp"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::find_mount;

    #[test]
    fn the_mount_is_found_where_nft_can_see_it() {
        let line = |root: &str, point: &str, kind: &str| {
            format!("36 25 0:32 {root} {point} rw,relatime shared:9 - {kind} cgroup2 rw\n")
        };
        let found = |text: &str| find_mount(text);
        let unified = line("/", "/sys/fs/cgroup/unified", "cgroup2");
        assert_eq!(
            found(&unified).as_deref(),
            Some(Path::new("/sys/fs/cgroup/unified"))
        );
        assert_eq!(found(&line("/", "/sys/fs/cgroup", "cgroup")), None);
        assert_eq!(found(&line("/../..", "/sys/fs/cgroup", "cgroup2")), None);
        assert_eq!(found(&line("/", "/mnt/cg", "cgroup2")), None);
        assert_eq!(found(""), None);
    }
}
