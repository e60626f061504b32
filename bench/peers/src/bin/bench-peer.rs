//! One end of one measurement.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_peers::main()
}
