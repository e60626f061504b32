//! The crates of the workspace: which targets each has, and their source.
//!
//! Made from what `cargo metadata` says and the files, for `layers` and `house`. It judges nothing.

use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::exec::relative;
use crate::tree::{Scope, Sources, Tree, sources};

/// The folders whose crates the laws hold for.
const FOLDERS: &[&str] = &["crates", "xtask"];

/// Everything that the laws read.
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) sources: Sources,
}

/// One crate.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) targets: Vec<Target>,
}

/// Which code a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Shipped,
    Test,
    Build,
}

/// One thing that cargo builds.
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// Its first file, from the workspace's root.
    pub(crate) path: String,
}

impl Workspace {
    /// The workspace that this helper belongs to, as `cargo metadata` knows it.
    pub(crate) fn of(metadata: &Value) -> Self {
        Self::new(metadata, sources(FOLDERS))
    }

    /// What `cargo metadata` said, and the files.
    pub(crate) fn new(metadata: &Value, sources: Sources) -> Self {
        let packages = list(&metadata["packages"])
            .iter()
            .map(|package| Package {
                name: text(&package["name"]),
                targets: list(&package["targets"])
                    .iter()
                    .filter_map(target)
                    .collect(),
            })
            .collect();
        Self { packages, sources }
    }

    /// The crate of this name.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// The targets of a crate that are of this kind, parsed.
    pub(crate) fn trees(&self, package: &Package, kind: Kind, scope: Scope) -> Outcome<Vec<Tree>> {
        package
            .targets
            .iter()
            .filter(|target| target.kind == kind)
            .map(|target| Tree::read(&self.sources, &target.path, scope))
            .collect()
    }
}

fn target(found: &Value) -> Option<Target> {
    let kind = match found["kind"][0].as_str()? {
        "test" | "bench" | "example" => Kind::Test,
        "custom-build" => Kind::Build,
        _ => Kind::Shipped,
    };
    let path = relative(Path::new(found["src_path"].as_str()?));
    Some(Target { kind, path })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
