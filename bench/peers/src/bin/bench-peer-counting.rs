//! One end of one measurement, with an allocator that counts.

use std::process::ExitCode;

use bench_peers::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    bench_peers::main()
}
