//! The shapes of Freenet's benchmarks over real sockets on the loopback interface.
//!
//! Each sample is a fresh connection: from `connect` until the receiver has read every byte.
//! `cargo bench -p towline --bench seed`; `crates/lab/benches/seed.rs` has the same shapes on virtual
//! time, where they do not depend on the machine.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(
    unreachable_pub,
    dead_code,
    clippy::disallowed_methods,
    reason = "files shared with other crates, and real time"
)]

mod loopback;
#[path = "../../../lab/src/shapes/table.rs"]
mod table;

use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use towline::config::TransportConfig;

use loopback::{Failure, Loopback};
use table::{SHAPES, Shape};

async fn measure(
    loopback: &Loopback,
    shape: Shape,
    data: &Bytes,
    iterations: u64,
) -> Result<Duration, Failure> {
    let mut sum = Duration::ZERO;
    for _ in 0..iterations {
        let (_, whole) = loopback.connect_and_send(shape.streams, data).await?;
        sum += whole;
    }
    Ok(sum)
}

fn seed(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    for shape in SHAPES {
        let transport = TransportConfig::default().rate_limit(shape.rate_limit);
        let _inside = runtime.enter();
        let loopback = Loopback::new(transport).expect("sockets on the loopback interface");
        let data = Bytes::from(vec![0; shape.bytes as usize]);
        let mut group = criterion.benchmark_group(shape.id);
        group
            .sampling_mode(SamplingMode::Flat)
            .sample_size(20)
            .throughput(Throughput::Bytes(shape.total()));
        group.bench_function("loopback", |bencher| {
            bencher.iter_custom(|iterations| {
                let measured = measure(&loopback, shape, &data, iterations);
                runtime.block_on(measured).unwrap_or_else(|e| panic!("{e}"))
            });
        });
        group.finish();
    }
}

criterion_group!(benches, seed);
criterion_main!(benches);
