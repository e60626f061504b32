//! The framed echo over tokio-rustls, server or load.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_peers::stcp::main()
}
