//! A crate's source as a tree of modules, parsed with `syn`.
//!
//! `layers` and `house` read it. It owns where a module's file lies, what each module defines and
//! imports, and where a path leads: through `crate`, `self`, `super`, `use` (renamed, grouped,
//! globbed, re-exported) to the module that defines the name. It expands no macro and infers no
//! types; `uses` says what that leaves unseen.

mod imports;
mod lines;
mod modules;
mod prune;
mod uses;

pub(crate) use lines::{line, lines_of};
pub(crate) use modules::{Scope, SourceFile, Sources, Tree, sources};
pub(crate) use uses::Uses;

#[cfg(test)]
mod tests;
