//! The folder where keys and certificates are kept.

use std::path::PathBuf;

use crate::exit::Failure;

/// Where keys are kept; `what` is looked for there.
pub(crate) fn home(what: &str) -> Result<PathBuf, Failure> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("TOWLINE_HOME")
        .or_else(|| set("XDG_DATA_HOME").map(|data| data.join("towline")))
        .or_else(|| set("HOME").map(|home| home.join(".local/share/towline")))
        .ok_or_else(|| {
            Failure::usage(format!("no place for {what}")).next("set TOWLINE_HOME to a folder")
        })
}
