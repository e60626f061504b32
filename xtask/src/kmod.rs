//! `make kmod-test`: the kernel module in a virtual machine with a Debian kernel.
//!
//! 1. The kernel and its headers, fetched with apt into `.cache/kmod`, unpacked, never installed.
//! 2. The module, `towline` for its agent, the library's tests and the guest's programs, built here.
//! 3. An initramfs with all of it and Python, booted under QEMU's software CPU.
//! 4. `guest.py` there runs the files of `kmod/tests/suites` and prints the suite's closing line.
//!
//! Never KVM: hosts that emulate parts of it stop in the kernel's decompressor.

mod debug;
mod image;
mod kernel;
#[cfg(test)]
mod tests;
mod work;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::exec::{capture, cargo, program, root, run, run_reading, which};
use crate::report::Skips;
use image::Image;
use kernel::Kernel;
use work::{Package, io, remake};

/// What every guest needs.
const PACKAGES: &[Package] = &[
    (
        "qemu-system-x86",
        "qemu-system-x86_64",
        "runs the guest of the kernel module's tests",
    ),
    (
        "seabios",
        "/usr/share/seabios/bios-256k.bin",
        "its firmware",
    ),
    ("busybox-static", "busybox", "the guest's shell"),
    ("cpio", "cpio", "packs the guest's files"),
    ("kmod", "/sbin/depmod", "depmod for the guest's modules"),
    (
        "libelf-dev",
        "/usr/include/libelf.h",
        "objtool, as the module is built",
    ),
    ("binutils", "strip", "makes the agent small"),
    ("gcc", "gcc", "builds the module and the guest's programs"),
    ("make", "make", "the same"),
    ("xz-utils", "xz", "unpacks the guest's modules"),
    ("openssl", "openssl", "the foreign peer in the guest"),
    ("python3", "/usr/bin/python3", "runs the guest's tests"),
    ("strace", "strace", "counts system calls in the guest"),
    ("iproute2", "ip", "makes network namespaces in the guest"),
];

/// Debian's cloud kernels, and how the guest's CPU must be: without these two features early boot
/// fails now and then under QEMU 7.2.
const CPU: &str = "max,-cx16,-la57";

/// Kernel modules that kTLS and its ciphers need, the agent to see which connections stay here, and a
/// wire between network namespaces.
const MODULES: &[&str] = &[
    "tls",
    "gcm",
    "ccm",
    "aesni-intel",
    "ghash-clmulni-intel",
    "chacha20poly1305",
    "chacha-x86_64",
    "poly1305-x86_64",
    "tcp_diag",
    "veth",
];

/// How many times as long everything may take on a kernel that looks for errors.
const SLOWER: u32 = 10;

/// Seconds until a guest is stopped, but for those that were asked for.
const GUEST_TIMEOUT: u32 = 1800;

/// What is tested, and on what.
struct Run {
    version: String,
    /// On a kernel built here, which looks for errors and takes its time.
    looks_for_errors: bool,
    /// Whether the kernel may take the processor from code of the kernel (`preempt=full`).
    is_preemptible: bool,
    /// How long the tests run that take their time, and the seed of what is at random.
    seconds: Option<u32>,
    seed: Option<u32>,
    /// Suites and tests by name; none: all.
    tests: Vec<String>,
}

const USAGE: &str =
    "[--kernel=6.12|6.1] [--preempt=full] [--seconds=NUMBER] [--seed=NUMBER] [TEST…]";

/// `cargo xtask kmod-test`, with [`USAGE`].
pub(crate) fn kmod_test(arguments: &[String]) -> Outcome {
    let run = Run::parse(arguments)?;
    if let Some(why) = missing(PACKAGES.iter()) {
        return Err(why);
    }
    run.test().map(drop)
}

/// `cargo xtask kmod-debug`, with the same arguments but for the kernel: the same on a kernel with
/// KASAN, lockdep and kmemleak. By hand: it takes hours.
pub(crate) fn kmod_debug(arguments: &[String]) -> Outcome {
    let mut run = Run::parse(arguments)?;
    run.looks_for_errors = true;
    // Built in, and what finds most races.
    run.is_preemptible = true;
    if let Some(why) = missing(packages()) {
        return Err(why);
    }
    run.test().map(drop)
}

impl Run {
    fn new() -> Self {
        Self {
            version: "6.12".to_owned(),
            looks_for_errors: false,
            is_preemptible: false,
            seconds: None,
            seed: None,
            tests: Vec::new(),
        }
    }

    fn parse(arguments: &[String]) -> Outcome<Self> {
        let mut run = Self::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, mut value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), None),
            };
            if !name.starts_with('-') {
                run.tests.push(argument.clone());
                continue;
            }
            if value.is_none() {
                value = rest.next().map(String::as_str);
            }
            let value = value.ok_or_else(|| format!("{name} needs a value: {USAGE}"))?;
            let number = || value.parse().map_err(|_| format!("{name}: {USAGE}"));
            match name {
                "--kernel" => run.version = value.to_owned(),
                "--preempt" if value == "full" => run.is_preemptible = true,
                "--seconds" => run.seconds = Some(number()?),
                "--seed" => run.seed = Some(number()?),
                _ => return Err(format!("unknown argument `{argument}`: {USAGE}")),
            }
        }
        Ok(run)
    }

    fn test(&self) -> Outcome<String> {
        let (kernel, name) = match self.looks_for_errors {
            true => (debug::kernel()?, "build-debug".to_owned()),
            false => {
                let kernel = Kernel::fetch(&self.version, &cache())?;
                (kernel, format!("build-{}", self.version))
            }
        };
        let build = cache().join(name);
        let module = build_module(&kernel, &build)?;
        let image = Image::new(&build.join("root"))?;
        stage(&image, &kernel, &module, &build)?;
        image.write("t/arguments", &self.guest_arguments())?;
        let initrd = build.join("initrd");
        image.pack(&initrd)?;
        // QEMU 7.2 loses a guest in early boot now and then: that one is started once more.
        for _ in 0..2 {
            if let Some(outcome) = self.boot(&kernel, &initrd) {
                return outcome;
            }
            println!("the guest died without a word");
        }
        Err("the guest died twice before its first word".to_owned())
    }

    /// What `guest.py` is called with.
    fn guest_arguments(&self) -> String {
        let slow = self.looks_for_errors.then_some(SLOWER);
        let numbers = [
            ("--seconds", self.seconds),
            ("--seed", self.seed),
            ("--slow", slow),
        ];
        let numbers = numbers
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let all: Vec<String> = numbers.chain(self.tests.iter().cloned()).collect();
        all.join(" ")
    }

    /// One run of the guest; `None` if it died before its first word.
    fn boot(&self, kernel: &Kernel, initrd: &Path) -> Option<Outcome<String>> {
        // slub_debug: freed memory is poisoned, so that its use is an oops.
        let mut line =
            "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr slub_debug=FZP"
                .to_owned();
        if self.is_preemptible {
            line.push_str(" preempt=full");
        }
        // Whoever notes each byte's state needs an eighth more for that, and to remember what was freed.
        let memory = if self.looks_for_errors {
            "3072"
        } else {
            "1536"
        };
        let mut qemu = Command::new("timeout");
        let slow = if self.looks_for_errors { SLOWER } else { 1 };
        let seconds = slow * GUEST_TIMEOUT + 3 * self.seconds.unwrap_or_default();
        qemu.args([&seconds.to_string(), "qemu-system-x86_64"])
            .args(["-accel", "tcg,thread=multi", "-cpu", CPU])
            .args(["-smp", "2", "-m", memory, "-nodefaults", "-display", "none"])
            .args(["-serial", "stdio", "-monitor", "none", "-no-reboot"])
            .args(["-nic", "none", "-kernel"])
            .arg(kernel.image())
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", &line]);
        let mut is_up = false;
        let mut status = None;
        let mut closing = None;
        // QEMU's own status says nothing about the tests.
        let _ = run_reading(&mut qemu, |line| {
            let line = line.trim();
            is_up |= line.ends_with("GUEST-IS-UP");
            if let Some(number) = line.strip_prefix("GUEST-EXIT-STATUS=") {
                status = Some(number.to_owned());
            }
            if line.ends_with(" failed") && line.contains(" passed, ") {
                closing = Some(line.to_owned());
            }
        });
        let Some(status) = status else {
            let panicked = "the guest died on the way: did its kernel panic?";
            return is_up.then(|| Err(panicked.to_owned()));
        };
        Some(match (status.as_str(), closing) {
            ("0", Some(closing)) => Ok(format!("{closing} on Linux {}", kernel.release())),
            ("99", closing) => Err(format!(
                "the kernel complained, see above ({})",
                closing.unwrap_or_default()
            )),
            (status, closing) => Err(format!(
                "the guest ended with status {status} ({})",
                closing.as_deref().unwrap_or("no closing line")
            )),
        })
    }
}

/// The part of `make test`: the newer kernel, or a skip.
pub(crate) fn suite(skips: &mut Skips) -> Outcome<String> {
    if let Some(why) = missing(PACKAGES.iter()) {
        skips.add("kernel module", &why);
        return Ok("skipped".to_owned());
    }
    // No network is not this suite's failure; a wrong module is.
    if let Err(why) = Kernel::fetch("6.12", &cache()) {
        skips.add(
            "kernel module",
            &format!("Linux 6.12 could not be fetched: {why}"),
        );
        return Ok("skipped".to_owned());
    }
    Run::new().test()
}

/// What all guests need, and the kernel that looks for errors.
pub(crate) fn packages() -> impl Iterator<Item = &'static Package> {
    PACKAGES.iter().chain(debug::PACKAGES)
}

/// What this machine lacks of them, with the line that installs it.
fn missing(packages: impl Iterator<Item = &'static Package>) -> Option<String> {
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        return Some("the guest is x86-64 Linux, this machine is not".to_owned());
    }
    if which("apt-get").is_none() {
        return Some(
            "the guest's kernel comes from Debian with apt-get, which is not here".to_owned(),
        );
    }
    let missing: Vec<&str> = packages
        .filter(|(_, proof, _)| which(proof).is_none() && !Path::new(proof).exists())
        .map(|(package, _, _)| *package)
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!(
        "missing here; as root: apt-get install --yes --no-install-recommends {}",
        missing.join(" ")
    ))
}

fn cache() -> PathBuf {
    root().join(".cache/kmod")
}

fn build_module(kernel: &Kernel, build: &Path) -> Outcome<PathBuf> {
    let folder = build.join("stcp");
    remake(&folder)?;
    for entry in std::fs::read_dir(root().join("kmod/stcp")).map_err(io("kmod/stcp"))? {
        let path = entry.map_err(io("kmod/stcp"))?.path();
        let name = path.file_name().unwrap_or_default();
        std::fs::copy(&path, folder.join(name)).map_err(io(&path.display().to_string()))?;
    }
    let mut make = program("make", ["-s", "-C"]);
    make.arg(&folder)
        .arg(format!("KDIR={}", kernel.headers().display()));
    run(&mut make)?;
    Ok(folder.join("stcp.ko"))
}

/// Everything that the guest has.
fn stage(image: &Image, kernel: &Kernel, module: &Path, build: &Path) -> Outcome {
    image.busybox()?;
    kernel.stage_modules(image, MODULES)?;
    let folder = root().join("kmod/tests");
    image.add(&folder.join("init"), "init")?;
    let mut scripts = Vec::new();
    for place in ["", "suites/"] {
        for entry in std::fs::read_dir(folder.join(place)).map_err(io("kmod/tests"))? {
            let path = entry.map_err(io("kmod/tests"))?.path();
            if path.extension().is_some_and(|kind| kind == "py") {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                image.add(&path, &format!("t/{place}{name}"))?;
                scripts.push(path);
            }
        }
    }
    image.python(&scripts)?;
    image.add(module, "t/stcp.ko")?;

    for name in ["calls", "storm"] {
        let made = build.join(name);
        let source = folder.join(format!("{name}.c"));
        let mut gcc = program(
            "gcc",
            ["-O1", "-Wall", "-Werror", "-static", "-pthread", "-o"],
        );
        run(gcc.arg(&made).arg(source))?;
        image.add(&made, &format!("t/{name}"))?;
    }

    let made = ["towline", "libtowline_preload.so"];
    let packages = [
        "build",
        "--package=towline-cli",
        "--package=towline-preload",
    ];
    for (path, name) in build_programs(build, &packages, made)?.iter().zip(made) {
        image.add_program(path, &format!("bin/{name}"))?;
    }
    // The library's own tests, for records made by the kernel.
    let made = ["stcp", "stcp_chaos"];
    let tests = [
        "test",
        "--no-run",
        "--package=towline",
        "--test=stcp",
        "--test=stcp_chaos",
    ];
    for (path, name) in build_programs(build, &tests, made)?.iter().zip(made) {
        image.add_program(path, &format!("t/library/{name}"))?;
    }
    make_keys(image, build)?;
    for name in ["openssl", "strace", "bash"] {
        let path = which(name).ok_or_else(|| format!("{name} is gone"))?;
        image.add_program(&path, &format!("bin/{name}"))?;
    }
    // Not in the place of busybox's.
    let ip = which("ip").ok_or("ip is gone")?;
    image.add_program(&ip, "t/ip")
}

/// Builds with cargo, and takes from what it made the files with these names, without what only a
/// debugger reads.
fn build_programs<const N: usize>(
    build: &Path,
    arguments: &[&str],
    names: [&str; N],
) -> Outcome<[PathBuf; N]> {
    let mut cargo = cargo(arguments.iter().copied());
    let lines = capture(cargo.args(["--quiet", "--locked", "--message-format=json"]))?;
    let built: Vec<serde_json::Value> = lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let folder = build.join("programs");
    std::fs::create_dir_all(&folder).map_err(io("programs"))?;
    let mut stripped = names.map(|name| folder.join(name));
    for (name, stripped) in names.iter().zip(&mut stripped) {
        let made = built.iter().find_map(|message| made_as(message, name));
        let made = made.ok_or_else(|| format!("cargo made no {name}"))?;
        run(program("strip", ["-o"]).arg(stripped).arg(made))?;
    }
    Ok(stripped)
}

/// The file called `name`, or the program of the target called so, if cargo's message is of it.
fn made_as<'m>(message: &'m serde_json::Value, name: &str) -> Option<&'m str> {
    let files = message["filenames"].as_array()?;
    let is_target = message["target"]["name"] == *name;
    let program = message["executable"].as_str().filter(|_| is_target);
    let mut files = files.iter().filter_map(serde_json::Value::as_str);
    program.or_else(|| files.find(|file| Path::new(file).ends_with(name)))
}

/// A key of ours, and a certificate for loopback where OpenSSL is to know us.
fn make_keys(image: &Image, build: &Path) -> Outcome {
    let openssl = |line: &str| {
        let mut command = Command::new("openssl");
        command.args(line.split_whitespace()).current_dir(build);
        capture(command.stderr(std::process::Stdio::null()))
    };
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
         -addext subjectAltName=IP:127.0.0.1,IP:::1 -addext basicConstraints=critical,CA:FALSE \
         -keyout key.pem -out cert.pem",
    )?;
    openssl("genpkey -algorithm ed25519 -out server-key.pem")?;
    openssl("genpkey -algorithm ed25519 -out client-key.pem")?;
    for file in ["cert.pem", "key.pem", "server-key.pem", "client-key.pem"] {
        image.add(&build.join(file), &format!("t/{file}"))?;
    }
    Ok(())
}
