//! Project helpers behind the `Makefile`: `cargo xtask COMMAND`.
//!
//! Owns everything the project does to itself (tests in order, checks, the demonstration run,
//! system packages) and nothing a user of Towline needs. Each command is one module; `exec` runs
//! programs, `report` keeps what passed, failed and was skipped. Nothing here is unsafe and
//! nothing is skipped in silence.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a command-line helper: it prints, measures wall time and waits for programs"
)]

mod bench;
mod caps;
mod capture;
mod check;
mod citations;
mod compare;
mod counts;
mod demo;
mod demo_link;
mod deny;
mod examples;
mod exec;
mod flame;
mod fuzz;
mod house;
mod install;
mod kmod;
mod layers;
mod link;
mod outcome;
mod planted;
mod python;
mod readme;
mod report;
mod setup;
mod suites;
mod tree;
mod web;
mod workspace;

use std::process::ExitCode;

use outcome::Outcome;

const HELP: &str = "\
cargo xtask COMMAND

  run            the demonstration: sends real files between two processes, checks every hash
  test           every suite in order; skipped parts are listed at the end
  check          fmt, clippy, layers, docs, deny, caps table, citations, aarch64
  layers [--write]   who may import whom, unused imports, circles of files, `impl Connection`;
                 --write rewrites the table in docs/architecture.md (also part of check)
  house [--json] [--strict]   figures of the source beside their marks; --strict fails on a miss
  caps           docs/caps.md against the source (also part of check)
  citations [--write]   the RFCs' requirements against code and tests; --write rewrites
                 docs/citations.md (also part of check)
  deny           licences, bans and sources of all dependencies (also part of check)
  setup-system   prints, then installs, the system packages the tests can use
  install [--prefix P] [--destdir D]   builds and installs program, preload shim and units
  installed      installs into a folder and asks what is there (also part of test)
  interop [ARG…] the whole interop table (ARGs go to the runner)
  interop-wt [ARG…]   WebTransport with other stacks (ARGs go to the runner)
  interop-h3 [ARG…]   HTTP/3 with other stacks, each client with each server (also part of test)
  link-chaos [ARG…]   both ends of a delta link are killed; --runs N (10 of it also part of test)
  sim [ARG…]     the random swarm (ARGs go to it, for example --seeds 20000)
  planted [NAME…] known bugs are put into a copy of the tree; the tests must find each
  capture        tshark decrypts a capture with our key log (also part of test)
  examples       every example runs and asserts what it shows (also part of test)
  readme         every block of README and of the walk-throughs as printed (also part of test)
  web            the browser client: committed scripts are what their source gives, and its tests
                 (also part of test)
  python         the Python package: built, its types checked, its tests (also part of test)
  wheel [ARG…]   a release wheel of the Python package in target/wheels (ARGs go to maturin)
  kmod-test [--kernel=6.12|6.1] [--preempt=full] [--seconds=NUMBER] [--seed=NUMBER] [TEST…]
                              the kernel module in QEMU (6.12 also part of test)
  kmod-debug [--seconds=NUMBER] [--seed=NUMBER] [TEST…]
                              the same on a kernel with KASAN, lockdep and kmemleak, built here
  fuzz [TARGET…] [--seconds N]   each fuzz target for N seconds (600)
  fuzz-seeds     rewrites the generated part of fuzz/corpus
  flame NAME [--binary PATH]     flame graphs of a bulk transfer into docs/evidence
  bench-quic [ARG…]   speed beside other QUIC stacks (--help for ARGs)
  bench-wt [ARG…]     WebTransport in Rust and Python beside others (--help for ARGs)
  bench-link [ARG…]   the delta link beside signalk-edge-link (--help for ARGs)
  bench-stcp [ARG…]   secure TCP beside plain TCP, rustls, OpenSSL and stunnel (--help for ARGs)
  bench-neighbour [ARG…]   Linux TCP beside Towline on one bottleneck, as root (--help for ARGs)
  bench-paths [ARG…]       outages and lost handshake packets beside quinn, as root (--help for ARGs)
  bench-seed [ARG…]   Freenet's published tables beside Towline's (--help for ARGs)
  bench-compare BASE [--virtual]   the benches of Freenet's shapes against a revision or a saved base
  flood [ARG…]   a server under floods: who still connects, what transfers keep (--help for ARGs)
  counts [--record] [--json]   instruction counts against their baseline
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match command {
        "run" => demo::run(),
        "test" => suites::test(),
        "check" => check::check(),
        "layers" => layers::layers(rest),
        "house" => house::house(rest),
        "examples" => {
            let mut report = report::Report::default();
            report.step("examples", |_| examples::examples());
            report.finish("examples")
        }
        "readme" => {
            let mut report = report::Report::default();
            report.step("readme", readme::readme);
            report.finish("readme")
        }
        "python" => python::python(&mut report::Skips::default()).map(drop),
        "wheel" => python::wheel(rest),
        "web" => web::web(&mut report::Skips::default()).map(drop),
        "caps" => caps::caps(),
        "citations" => citations::citations(rest),
        "deny" => deny::deny(),
        "setup-system" => setup::setup_system(rest),
        "install" => install::install(rest),
        "installed" => install::installed(&mut report::Skips::default()).map(drop),
        "interop" => suites::interop(rest),
        "interop-wt" => suites::interop_wt(rest),
        "interop-h3" => suites::interop_h3(rest),
        "sim" => suites::sim(rest),
        "planted" => planted::planted(rest),
        "capture" => capture::capture(&mut report::Skips::default()).map(drop),
        "kmod-test" => kmod::kmod_test(rest),
        "kmod-debug" => kmod::kmod_debug(rest),
        "fuzz" => fuzz::fuzz(rest),
        "fuzz-seeds" => fuzz::write_seeds(),
        "bench-quic" => bench::bench_quic(rest),
        "bench-wt" => bench::bench_wt(rest),
        "bench-link" => link::bench(rest),
        "link-chaos" => link::chaos(rest),
        "bench-stcp" => bench::bench_stcp(rest),
        "bench-neighbour" => bench::bench_neighbour(rest),
        "bench-paths" => bench::bench_paths(rest),
        "bench-seed" => bench::bench_seed(rest),
        "bench-compare" => compare::bench_compare(rest),
        "counts" => counts::counts(rest),
        "flood" => bench::flood(rest),
        "flame" => flame::flame(rest),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("unknown command `{other}`\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {command}: {message}");
            ExitCode::FAILURE
        }
    }
}
