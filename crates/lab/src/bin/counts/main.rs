//! `counts`: the hot paths as workloads for callgrind, which counts their instructions.
//!
//! `counts WORKLOAD` runs one workload deterministically and prints `units N`: the packets, frames
//! or turns that went through [`measured_workload`](marker::measured_workload). Callgrind collects inside that function alone,
//! so handshake, warm-up and the other side of the connection cost nothing. `cargo xtask counts`
//! runs the program under valgrind, divides, and compares with a baseline. No clock, no socket.
#![expect(clippy::print_stdout, reason = "a program: it talks to its user")]

mod bulk;
mod hostile;
mod marker;
mod null_aead;
mod parse;
mod quiet;
mod recovery;
mod world;

use std::process::ExitCode;

use bulk::Phase;
use world::Aead;

/// A name, and how to run it; the result is the number of units.
type Workload = (&'static str, fn() -> u64);

const WORKLOADS: &[Workload] = &[
    ("parse-packet", parse::packet),
    ("parse-ack-1", || parse::ack(1)),
    ("parse-ack-32", || parse::ack(32)),
    ("write", || bulk::run(Aead::Null, Phase::Write)),
    ("transmit-null", || bulk::run(Aead::Null, Phase::Transmit)),
    ("transmit-aes", || {
        bulk::run(Aead::Aes128Gcm, Phase::Transmit)
    }),
    ("receive-null", || bulk::run(Aead::Null, Phase::Receive)),
    ("receive-aes", || bulk::run(Aead::Aes128Gcm, Phase::Receive)),
    ("read", || bulk::run(Aead::Null, Phase::Read)),
    ("ack", || bulk::run(Aead::Null, Phase::Ack)),
    ("track", recovery::track),
    ("rtt", recovery::rtt),
    ("deadline", quiet::deadline),
    ("timer", quiet::timer),
    ("honest", hostile::honest),
    ("hostile-pings", hostile::pings),
    ("hostile-streams", hostile::streams),
    ("hostile-pieces", hostile::pieces),
    ("hostile-crypto", hostile::crypto),
    ("hostile-resets", hostile::resets),
    ("hostile-credit", hostile::credit),
    ("hostile-ids", hostile::ids),
    ("hostile-paths", hostile::challenges),
    ("hostile-acks", hostile::acks),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match arguments.as_slice() {
        [name] => WORKLOADS.iter().find(|(known, _)| known == name),
        _ => None,
    };
    let Some((_, run)) = wanted else {
        let names: Vec<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
        eprintln!("counts WORKLOAD\n  one of: {}", names.join(", "));
        return ExitCode::from(2);
    };
    println!("units {}", run());
    println!("cpu {}", cpu());
    ExitCode::SUCCESS
}

/// What of the processor decides which code the AEAD and the C library choose.
#[cfg(target_arch = "x86_64")]
fn cpu() -> String {
    let features = [
        ("aes", is_x86_feature_detected!("aes")),
        ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("vaes", is_x86_feature_detected!("vaes")),
    ];
    let present = features.iter().filter(|(_, present)| *present);
    let names: Vec<&str> = present.map(|(name, _)| *name).collect();
    names.join(" ")
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> String {
    std::env::consts::ARCH.to_owned()
}
