//! What the sans-I/O crates may not take from the standard library, and that they forbid unsafe code.
//!
//! Sockets, files, threads, clocks and the process around them: bytes, time and randomness are
//! arguments there. Only what ships is asked; packages that would bring the same are
//! `layers::IO_PACKAGES`.

use syn::punctuated::Punctuated;

use super::is_sans_io;
use crate::Outcome;
use crate::tree::{Scope, Tree, Uses};
use crate::workspace::{Kind, Workspace};

/// What does I/O, reads a clock, or knows the process; a path that begins so is broken.
const FORBIDDEN: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::UNIX_EPOCH",
];

/// Modules that hold some of these: whoever takes one whole could name them unseen.
const WHOLE: &[&str] = &["std", "std::net", "std::time"];

/// Every place where a sans-I/O crate reaches out, and every one that does not forbid unsafe code.
pub(super) fn broken(workspace: &Workspace) -> Outcome<Vec<String>> {
    let mut broken = Vec::new();
    for package in &workspace.packages {
        if !is_sans_io(&package.name) {
            continue;
        }
        for tree in workspace.trees(package, Kind::Shipped, Scope::Shipped)? {
            broken.extend(reaching_out(&tree));
            broken.extend(allowing_unsafe(&tree));
        }
    }
    Ok(broken)
}

fn reaching_out(tree: &Tree) -> Vec<String> {
    Uses::of(tree)
        .outside
        .iter()
        .filter(|outside| is_forbidden(&outside.path))
        .map(|outside| {
            format!(
                "{}:{}: {} (a sans-I/O crate takes bytes and time as arguments)",
                tree.files[outside.file].path,
                outside.line,
                outside.path.join("::")
            )
        })
        .collect()
}

fn is_forbidden(path: &[String]) -> bool {
    let begins = |with: &str| {
        let mut path = path.iter();
        with.split("::")
            .all(|part| path.next().is_some_and(|own| own == part))
    };
    let whole = path.strip_suffix(&["*".to_owned()]).unwrap_or(path);
    FORBIDDEN.iter().any(|forbidden| begins(forbidden))
        || WHOLE.iter().any(|module| whole.join("::") == *module)
}

/// The crate's first file has to say `#![forbid(unsafe_code)]`, for all it ships.
fn allowing_unsafe(tree: &Tree) -> Option<String> {
    let first = tree.files.first()?;
    let forbids = first.syntax.attrs.iter().any(|attribute| {
        let lints = Punctuated::<syn::Path, syn::Token![,]>::parse_terminated;
        attribute.path().is_ident("forbid")
            && attribute
                .parse_args_with(lints)
                .is_ok_and(|lints| lints.iter().any(|lint| lint.is_ident("unsafe_code")))
    });
    (!forbids).then(|| format!("{} does not say #![forbid(unsafe_code)]", first.path))
}

#[cfg(test)]
mod tests;
