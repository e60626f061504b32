//! Lists what a sender sends: named files and folders, in a stable order.
//!
//! Symlinks inside folders are sent as links unless they are to be followed; devices, sockets and
//! pipes are left out, by name. Whatever is in a folder comes between it and its end. Blocking:
//! only file threads call it.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::caps::MAX_FILE_SIZE;
use crate::message::{Entry, FileFacts, FolderFacts, Modified, PERMISSIONS, Reason, Refusal};
use crate::path::{LinkTarget, PART_FOLDER, RelativePath, printable};

/// One thing to send: where it is, and its name at the receiver.
#[derive(Clone, Debug)]
pub struct Root {
    /// Where it is here.
    pub disk: PathBuf,
    /// `None` sends a folder's contents without the folder itself.
    pub name: Option<RelativePath>,
}

/// What a walk comes upon, in the order of the manifest: for a file with the path where to read it.
#[derive(Debug)]
pub(crate) struct Found(pub(crate) Entry, pub(crate) PathBuf);

/// The facts that identify a file's contents without reading it.
pub(crate) fn facts_of(metadata: &Metadata) -> FileFacts {
    FileFacts {
        size: metadata.len(),
        modified: modified(metadata),
        mode: mode(metadata),
    }
}

fn modified(metadata: &Metadata) -> Modified {
    Modified {
        seconds: metadata.mtime(),
        nanoseconds: metadata.mtime_nsec() as u32,
    }
}

fn mode(metadata: &Metadata) -> u16 {
    metadata.mode() as u16 & PERMISSIONS
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
    /// Names what cannot be sent by its path at the receiver: where it is here is our business.
    fn left_out(&mut self, path: &[u8], reason: Reason, text: impl Into<String>) -> bool {
        let path = match path {
            b"" => ".".to_owned(),
            path => printable(path),
        };
        let refusal = Refusal::new(reason, text);
        let entry = Entry::LeftOut { path, refusal };
        (self.found)(Found(entry, PathBuf::new()))
    }

    fn unreadable(&mut self, path: &[u8], error: &std::io::Error) -> bool {
        self.left_out(path, Reason::Unreadable, format!("cannot be read: {error}"))
    }

    fn visit(&mut self, disk: &Path, name: Option<&RelativePath>, follow: bool) -> bool {
        let shown = name.map_or(&[][..], RelativePath::as_bytes);
        let metadata = if follow {
            fs::metadata(disk)
        } else {
            fs::symlink_metadata(disk)
        };
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => return self.unreadable(shown, &error),
        };
        if metadata.is_dir() {
            return self.folder(disk, name, &metadata);
        }
        let Some(path) = name.filter(|_| metadata.is_file() || metadata.is_symlink()) else {
            return self.left_out(
                shown,
                Reason::Special,
                "a socket, a pipe or a device cannot be sent",
            );
        };
        let path = path.clone();
        if metadata.is_symlink() {
            return self.link(disk, path);
        }
        if metadata.len() > MAX_FILE_SIZE {
            return self.left_out(shown, Reason::TooMuch, "is larger than 1 PiB");
        }
        let facts = facts_of(&metadata);
        (self.found)(Found(Entry::File { path, facts }, disk.to_path_buf()))
    }

    fn link(&mut self, disk: &Path, path: RelativePath) -> bool {
        let target = match fs::read_link(disk) {
            Ok(target) => target,
            Err(error) => return self.unreadable(path.as_bytes(), &error),
        };
        match LinkTarget::parse(target.as_os_str().as_bytes()) {
            Ok(target) => {
                let entry = Entry::Link { path, target };
                (self.found)(Found(entry, PathBuf::new()))
            }
            Err(bad) => self.left_out(path.as_bytes(), Reason::BadPath, bad.0),
        }
    }

    fn folder(&mut self, disk: &Path, name: Option<&RelativePath>, metadata: &Metadata) -> bool {
        let identity = (metadata.dev(), metadata.ino());
        if !self.ancestors.insert(identity) {
            let shown = name.map_or(&[][..], RelativePath::as_bytes);
            return self.left_out(shown, Reason::Unreadable, "is a link to a folder above it");
        }
        let go_on = match name {
            None => self.contents(disk, None),
            Some(path) => {
                let facts = FolderFacts {
                    modified: modified(metadata),
                    mode: mode(metadata),
                };
                let entry = Entry::Folder {
                    path: path.clone(),
                    facts,
                };
                (self.found)(Found(entry, PathBuf::new()))
                    && self.contents(disk, name)
                    && (self.found)(Found(Entry::EndOfFolder, PathBuf::new()))
            }
        };
        self.ancestors.remove(&identity);
        go_on
    }

    fn contents(&mut self, disk: &Path, name: Option<&RelativePath>) -> bool {
        let above = name.map_or(&[][..], RelativePath::as_bytes);
        let listing = fs::read_dir(disk).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut children: Vec<_> = match listing {
            Ok(children) => children
                .into_iter()
                .map(|child| child.file_name())
                .collect(),
            Err(error) => {
                let text = format!("cannot be listed: {error}");
                return self.left_out(above, Reason::Unreadable, text);
            }
        };
        children.sort();
        for child in children {
            // At the top it would be the receiver's own; below, it is a folder like others.
            if name.is_none() && child.as_bytes() == PART_FOLDER.as_bytes() {
                continue;
            }
            let below = disk.join(&child);
            // As a whole: what the first name may not be, a later one may.
            let path = match above {
                b"" => child.as_bytes().to_vec(),
                above => [above, b"/", child.as_bytes()].concat(),
            };
            let go_on = match RelativePath::parse(&path) {
                Ok(path) => self.visit(&below, Some(&path), self.follow_links),
                Err(bad) => self.left_out(&path, Reason::BadPath, bad.0),
            };
            if !go_on {
                return false;
            }
        }
        true
    }
}
