//! `make setup-system`: what the tests can use beyond cargo, from the distribution and rustup.
//!
//! Prints the line a person would type, then runs it as root or through sudo. Go, npm and Python
//! themselves are never installed: where they are present the interop drivers use them. A part
//! that cannot be had is named at the end and the command fails, but the other parts are tried.

use std::process::Command;

use crate::Outcome;
use crate::exec::{cargo, program, run, shown, which};

/// Debian and Ubuntu package, and what uses it.
const PACKAGES: &[(&str, &str)] = &[
    ("tshark", "decrypts our captures with our key log"),
    (
        "gcc-aarch64-linux-gnu",
        "cargo check for aarch64 compiles the C of aws-lc",
    ),
    ("libc6-dev-arm64-cross", "headers for the same"),
    ("python3-venv", "the aioquic driver's own environment"),
    (
        "iproute2",
        "network namespaces for the relay's TUN form (as root)",
    ),
    (
        "nftables",
        "the redirect of towline stcp run, NATs of tests (as root)",
    ),
    (
        "conntrack",
        "has a NAT forget its mappings in tests (as root)",
    ),
    (
        "redis-server",
        "an unmodified program under towline stcp run",
    ),
    ("nginx-light", "another one"),
    (
        "postgresql",
        "another, with rules about addresses; a sink of the delta link",
    ),
    ("nats-server", "another sink of the delta link"),
    ("openssh-server", "another, with a log of addresses"),
    ("openssh-client", "its client"),
    ("curl", "its client"),
    ("busybox-static", "static programs under towline stcp run"),
    ("chromium", "a real browser over HTTP/3 and WebTransport"),
    ("firefox-esr", "another one"),
    ("openssl", "secure TCP beside its s_client and s_server"),
    ("stunnel4", "the peer of the proxy in make bench-stcp"),
    ("libssl-dev", "OpenSSL's own pair in make bench-stcp"),
    ("pkg-config", "finds it"),
    ("valgrind", "counts instructions for make counts"),
    ("cmake", "aws-lc on targets without a prepared build"),
];

const CROSS_TARGET: &str = "aarch64-unknown-linux-gnu";

/// `cargo xtask setup-system [--print]`; `--print` installs nothing.
pub(crate) fn setup_system(arguments: &[String]) -> Outcome {
    let only_print = match arguments {
        [] => false,
        [flag] if flag == "--print" => true,
        _ => return Err("it takes no argument but --print".to_owned()),
    };
    for (package, use_of) in packages() {
        println!("{package:24} {use_of}");
    }
    let mut steps = Vec::new();
    steps.push(apt(&["update"]));
    let mut install = apt(&["install", "--yes", "--no-install-recommends"]);
    install.args(packages().map(|(package, _)| package));
    steps.push(install);
    if which("rustup").is_some() {
        steps.push(program("rustup", ["target", "add", CROSS_TARGET]));
    } else {
        println!("no rustup here: the target {CROSS_TARGET} has to come with the toolchain");
    }
    if which("cargo-deny").is_none() {
        // Unoptimised: it reads one lock file, and a release build of it takes minutes.
        steps.push(cargo(["install", "--locked", "--debug", "cargo-deny"]));
    }
    for step in &steps {
        println!("+ {}", shown(step));
    }
    if only_print {
        return Ok(());
    }
    let failed: Vec<String> = steps
        .iter_mut()
        .filter_map(|step| run(step).err())
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("; "))
    }
}

/// Ours, and those of the kernel module's guest.
fn packages() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_guest = crate::kmod::packages().map(|&(package, _, use_of)| (package, use_of));
    PACKAGES.iter().copied().chain(of_guest)
}

fn apt(arguments: &[&str]) -> Command {
    let mut command = if is_root() {
        Command::new("env")
    } else {
        Command::new("sudo")
    };
    command
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
        .args(arguments);
    command
}

fn is_root() -> bool {
    program("id", ["-u"])
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
