//! Lists what a sender sends: named files and folders, in a stable order.
//!
//! Symlinks inside folders are left out (and counted) unless they are to be followed;
//! devices, sockets and pipes always are. Blocking: only file threads call it.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::caps::MAX_FILE_SIZE;
use super::message::{Entry, EntryKind, FileFacts, Modified, Reason, Refusal};
use super::path::{PART_FOLDER, RelativePath, printable};

/// One thing to send: where it is, and its name at the receiver.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) disk: PathBuf,
    /// `None` sends a folder's contents without the folder itself.
    pub(crate) name: Option<RelativePath>,
}

/// What a walk comes upon.
#[derive(Debug)]
pub(crate) enum Found {
    /// Goes into the manifest; the path is where to read it.
    Entry(Entry, PathBuf),
    /// A symlink or a special file.
    Skipped,
    /// Cannot be sent.
    Trouble { path: String, refusal: Refusal },
}

/// The facts that identify a file's contents without reading it.
pub(crate) fn facts_of(metadata: &Metadata) -> FileFacts {
    FileFacts {
        size: metadata.len(),
        modified: Modified {
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec() as u32,
        },
        executable: metadata.permissions().mode() & 0o100 != 0,
    }
}

/// Walks `roots`, telling `found` everything; stops early when it returns false.
pub(crate) fn walk(roots: &[Root], follow_links: bool, found: &mut dyn FnMut(Found) -> bool) {
    let mut walk = Walk {
        follow_links,
        found,
        ancestors: HashSet::new(),
    };
    for root in roots {
        // A named root is followed: its user pointed at it.
        if !walk.visit(&root.disk, root.name.as_ref(), true) {
            return;
        }
    }
}

struct Walk<'a> {
    follow_links: bool,
    found: &'a mut dyn FnMut(Found) -> bool,
    /// Device and inode of the folders above, against loops of followed links.
    ancestors: HashSet<(u64, u64)>,
}

impl Walk<'_> {
    fn trouble(&mut self, disk: &Path, reason: Reason, text: impl Into<String>) -> bool {
        let path = printable(disk.as_os_str().as_bytes());
        (self.found)(Found::Trouble {
            path,
            refusal: Refusal::new(reason, text),
        })
    }

    fn visit(&mut self, disk: &Path, name: Option<&RelativePath>, follow: bool) -> bool {
        let metadata = if follow {
            fs::metadata(disk)
        } else {
            fs::symlink_metadata(disk)
        };
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => {
                return self.trouble(disk, Reason::Unreadable, format!("cannot be read: {error}"));
            }
        };
        if metadata.is_dir() {
            return self.folder(disk, name, &metadata);
        }
        let Some(name) = name.filter(|_| metadata.is_file()) else {
            return (self.found)(Found::Skipped);
        };
        if metadata.len() > MAX_FILE_SIZE {
            return self.trouble(disk, Reason::TooMuch, "is larger than 1 PiB");
        }
        let entry = Entry {
            path: name.clone(),
            kind: EntryKind::File(facts_of(&metadata)),
        };
        (self.found)(Found::Entry(entry, disk.to_path_buf()))
    }

    fn folder(&mut self, disk: &Path, name: Option<&RelativePath>, metadata: &Metadata) -> bool {
        let identity = (metadata.dev(), metadata.ino());
        if !self.ancestors.insert(identity) {
            return self.trouble(disk, Reason::Unreadable, "is a link to a folder above it");
        }
        let go_on = self.contents(disk, name);
        self.ancestors.remove(&identity);
        go_on
    }

    fn contents(&mut self, disk: &Path, name: Option<&RelativePath>) -> bool {
        if let Some(name) = name {
            let entry = Entry {
                path: name.clone(),
                kind: EntryKind::Folder,
            };
            if !(self.found)(Found::Entry(entry, disk.to_path_buf())) {
                return false;
            }
        }
        let listing = fs::read_dir(disk).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut children: Vec<_> = match listing {
            Ok(children) => children
                .into_iter()
                .map(|child| child.file_name())
                .collect(),
            Err(error) => {
                return self.trouble(
                    disk,
                    Reason::Unreadable,
                    format!("cannot be listed: {error}"),
                );
            }
        };
        children.sort();
        for child in children {
            if child.as_bytes() == PART_FOLDER.as_bytes() {
                continue;
            }
            let below = disk.join(&child);
            let child_name =
                RelativePath::parse(child.as_bytes()).and_then(|path| path.below(name));
            let go_on = match child_name {
                Ok(child_name) => self.visit(&below, Some(&child_name), self.follow_links),
                Err(bad) => self.trouble(&below, Reason::BadPath, bad.0),
            };
            if !go_on {
                return false;
            }
        }
        true
    }
}
