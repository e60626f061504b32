//! One end of a run over a bad path.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_peers::paths::main()
}
