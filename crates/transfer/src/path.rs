//! Relative paths as they travel: validated once, at the edge, so that the rest of the
//! receiver can trust them.
//!
//! A path is a sequence of names joined by `/`. On Unix a name is any bytes except NUL and
//! `/`, so Windows names (`C:x`, `a\b`, `CON`) are ordinary names here. Nothing in this
//! module touches the file system; making links is `store`'s business.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::caps::{MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_DEPTH};

/// The folder inside a destination that holds unfinished files; no peer may name it.
pub(crate) const PART_FOLDER: &str = ".towline-part";

/// A relative path of at least one name, without `.`, `..`, NUL, empty or over-long names.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(Box<[u8]>);

/// Why a path was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPath(pub &'static str);

impl fmt::Display for BadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadPath {}

impl RelativePath {
    /// Checks the bytes a peer sent.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadPath> {
        if bytes.is_empty() {
            return Err(BadPath("the path is empty"));
        }
        if bytes.len() > MAX_PATH_BYTES {
            return Err(BadPath("the path is too long"));
        }
        if bytes[0] == b'/' {
            return Err(BadPath("the path is absolute"));
        }
        let mut depth = 0;
        for name in bytes.split(|&byte| byte == b'/') {
            depth += 1;
            Self::check_name(name)?;
            if depth == 1 && name == PART_FOLDER.as_bytes() {
                return Err(BadPath("the path names the folder of unfinished files"));
            }
        }
        if depth > MAX_PATH_DEPTH {
            return Err(BadPath("the path has too many folders"));
        }
        Ok(Self(bytes.into()))
    }

    fn check_name(name: &[u8]) -> Result<(), BadPath> {
        match name {
            b"" => Err(BadPath("the path has an empty name in it")),
            b"." | b".." => Err(BadPath("the path has `.` or `..` in it")),
            name if name.len() > MAX_NAME_BYTES => Err(BadPath("a name in the path is too long")),
            name if name.contains(&0) => Err(BadPath("the path has a NUL byte in it")),
            _ => Ok(()),
        }
    }

    /// This path below `prefix` (the URL's path on the receiving side).
    pub(crate) fn below(&self, prefix: Option<&RelativePath>) -> Result<Self, BadPath> {
        match prefix {
            None => Ok(self.clone()),
            Some(prefix) => {
                let mut joined = prefix.0.to_vec();
                joined.push(b'/');
                joined.extend_from_slice(&self.0);
                Self::parse(&joined)
            }
        }
    }

    /// The bytes as they travel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Names above the last one: how often `..` leads up from beside it before it leaves.
    fn depth(&self) -> usize {
        self.0.iter().filter(|&&byte| byte == b'/').count()
    }

    /// The parent folder's bytes (empty at the top) and the last name.
    pub fn split(&self) -> (&[u8], &OsStr) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&self.0[..at], OsStr::from_bytes(&self.0[at + 1..])),
            None => (&[], OsStr::from_bytes(&self.0)),
        }
    }
}

/// What a symbolic link says: any bytes but NUL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LinkTarget(Box<[u8]>);

impl LinkTarget {
    /// Checks the bytes a peer sent, or a link on disk has.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadPath> {
        match bytes {
            b"" => Err(BadPath("a link leads nowhere")),
            bytes if bytes.len() >= MAX_PATH_BYTES => Err(BadPath("a link's target is too long")),
            bytes if bytes.contains(&0) => Err(BadPath("a link's target has a NUL byte in it")),
            bytes => Ok(Self(bytes.into())),
        }
    }

    /// Whether a link at `place` with this target leads to a place within the destination, as long
    /// as every other link in it does.
    ///
    /// `..` may stand at the beginning only, and no oftener than there are folders above the link:
    /// behind a name that is itself a link, `..` would lead up from wherever that one leads.
    pub(crate) fn stays_inside(&self, place: &RelativePath) -> bool {
        if self.0.starts_with(b"/") {
            return false;
        }
        let names = self.0.split(|&byte| byte == b'/');
        let mut names = names.filter(|name| !matches!(*name, b"" | b".")).peekable();
        let mut up = 0;
        while names.next_if(|name| *name == b"..").is_some() {
            up += 1;
        }
        let depth = place.depth();
        let is_part_folder = up == depth
            && names
                .peek()
                .is_some_and(|name| *name == PART_FOLDER.as_bytes());
        up <= depth && !is_part_folder && names.all(|name| name != b"..")
    }

    /// The bytes of the link.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for LinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", printable(&self.0))
    }
}

/// A peer chose the bytes: control characters are escaped before they reach a terminal.
impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Text for people out of bytes from anywhere: control characters are escaped.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.chars().any(char::is_control) {
        text.chars()
            .flat_map(|c| {
                let escaped: Vec<char> = if c.is_control() {
                    c.escape_default().collect()
                } else {
                    vec![c]
                };
                escaped
            })
            .collect()
    } else {
        text.into_owned()
    }
}
