//! What all parts of `kmod` share: folders that start empty, errors as sentences, Debian packages.

use std::path::Path;

use crate::Outcome;

/// Debian package, what proves that it is there, and what uses it.
pub(super) type Package = (&'static str, &'static str, &'static str);

/// An empty folder at `path`.
pub(super) fn remake(path: &Path) -> Outcome {
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(io(&path.display().to_string()))?;
    }
    std::fs::create_dir_all(path).map_err(io(&path.display().to_string()))
}

/// An I/O error as a sentence about `what`.
pub(super) fn io(what: &str) -> impl FnOnce(std::io::Error) -> String {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}
