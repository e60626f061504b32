//! Relative paths as they travel: validated once, at the edge, so that the rest of the
//! receiver can trust them.
//!
//! A path is a sequence of names joined by `/`. On Unix a name is any bytes except NUL and
//! `/`, so Windows names (`C:x`, `a\b`, `CON`) are ordinary names here. Nothing in this
//! module touches the file system; symlinks are `store`'s business.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use super::caps::{MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_DEPTH};

/// The folder inside a destination that holds unfinished files; no peer may name it.
pub(crate) const PART_FOLDER: &str = ".towline-part";

/// A relative path of at least one name, without `.`, `..`, NUL, empty or over-long names.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RelativePath(Box<[u8]>);

/// Why a path was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPath(pub(crate) &'static str);

impl RelativePath {
    /// Checks the bytes a peer sent.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadPath> {
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
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The parent folder's bytes (empty at the top) and the last name.
    pub(crate) fn split(&self) -> (&[u8], &OsStr) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&self.0[..at], OsStr::from_bytes(&self.0[at + 1..])),
            None => (&[], OsStr::from_bytes(&self.0)),
        }
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
pub(crate) fn printable(bytes: &[u8]) -> String {
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
