//! A kernel that looks for errors in what it runs, built from Debian's source.
//!
//! KASAN finds memory used after it was freed or beyond its end, lockdep locks that could block
//! each other, kmemleak what nobody frees. Debian ships no such kernel; this one takes half an hour
//! or more to build, and lies outside the tree, so that it is built once.

use std::path::PathBuf;

use super::kernel::Kernel;
use super::work::{Package, io, remake};
use crate::Outcome;
use crate::exec::{program, run};

/// All that is on in it.
const CONFIG: &str = include_str!("debug.config");

/// Beside what the other guests need, to build a whole kernel.
pub(super) const PACKAGES: &[Package] = &[
    ("flex", "flex", "builds the kernel of make kmod-debug"),
    ("bison", "bison", "the same"),
    ("bc", "bc", "the same"),
];

/// What Debian calls the source.
const SOURCE: &str = "linux-source-6.12";

/// Where it is kept.
fn place() -> Outcome<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or(home);
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME is set: no place for the kernel")?;
    Ok(cache.join("towline/kmod-debug"))
}

/// The kernel, built if it is not there or its configuration has changed.
pub(super) fn kernel() -> Outcome<Kernel> {
    let place = place()?;
    let (ready, tree) = (place.join("ready"), place.join("linux"));
    // Written last: a build that was cut off begins again.
    if std::fs::read_to_string(&ready).is_ok_and(|built| built == CONFIG) {
        return Kernel::built(tree);
    }
    std::fs::create_dir_all(&place).map_err(io("the kernel's cache"))?;
    if !tree.join("Makefile").exists() {
        let deb = Kernel::source(SOURCE, &place.join("apt"))?;
        let unpacked = place.join("deb");
        remake(&unpacked)?;
        run(program("dpkg-deb", ["-x"]).arg(&deb).arg(&unpacked))?;
        remake(&tree)?;
        let archive = unpacked.join(format!("usr/src/{SOURCE}.tar.xz"));
        let mut tar = program("tar", ["--strip-components=1", "-xJf"]);
        run(tar.arg(archive).arg("-C").arg(&tree))?;
        std::fs::remove_dir_all(&unpacked).map_err(io("the package"))?;
    }
    let config = place.join("config");
    std::fs::write(&config, CONFIG).map_err(io("the configuration"))?;
    let all = format!("KCONFIG_ALLCONFIG={}", config.display());
    let make = |arguments: &[&str]| {
        let mut make = program("make", ["-s", "-C"]);
        run(make.arg(&tree).args(arguments))
    };
    make(&["allnoconfig", &all])?;
    refuse_what_is_left_out(&tree)?;
    println!(
        "building {SOURCE} with KASAN, lockdep and kmemleak: half an hour or more on two cores"
    );
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    make(&[&format!("-j{jobs}"), "bzImage", "modules"])?;
    std::fs::write(&ready, CONFIG).map_err(io("ready"))?;
    Kernel::built(tree)
}

/// An option whose own needs are not met is dropped by the kernel's tools without a word.
fn refuse_what_is_left_out(tree: &std::path::Path) -> Outcome {
    let made = std::fs::read_to_string(tree.join(".config")).map_err(io(".config"))?;
    let left_out: Vec<_> = CONFIG
        .lines()
        .filter(|line| line.starts_with("CONFIG_") && !made.lines().any(|made| made == *line))
        .collect();
    match left_out.is_empty() {
        true => Ok(()),
        false => Err(format!("the kernel does without {}", left_out.join(", "))),
    }
}
