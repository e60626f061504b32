//! The crates of the workspace: what each declares, which targets it has, and their source.
//!
//! Made from what `cargo metadata` says and the files, for `layers` and `house`. It judges nothing.

use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::exec::relative;
use crate::tree::{Scope, Sources, Tree, sources};

/// The folders whose crates the laws hold for.
const FOLDERS: &[&str] = &["crates", "examples", "xtask"];

/// Everything that the laws read.
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) sources: Sources,
}

/// One crate.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// A dependency on another crate of the workspace.
pub(crate) struct Dependency {
    pub(crate) package: String,
    /// The name that code writes.
    pub(crate) name_in_code: String,
    pub(crate) kind: Kind,
}

/// Which of the manifest's three lists a dependency is on, and which code a target is.
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
        let packages = list(&metadata["packages"]);
        let members: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
        let packages = packages
            .iter()
            .map(|package| Package {
                name: text(&package["name"]),
                dependencies: list(&package["dependencies"])
                    .iter()
                    .filter(|found| members.contains(&text(&found["name"]).as_str()))
                    .map(dependency)
                    .collect(),
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

fn dependency(found: &Value) -> Dependency {
    let package = text(&found["name"]);
    Dependency {
        name_in_code: found["rename"]
            .as_str()
            .unwrap_or(&package)
            .replace('-', "_"),
        kind: match found["kind"].as_str() {
            Some("dev") => Kind::Test,
            Some("build") => Kind::Build,
            _ => Kind::Shipped,
        },
        package,
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
