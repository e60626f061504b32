//! The shapes of Freenet's benchmarks on virtual time, in criterion's form.
//!
//! What criterion is told is the time that passed in the simulated network, handshake included: it
//! is the same on every machine. `cargo bench -p towline-lab --bench seed`, or with a base to
//! compare with, `make bench-compare`. `crates/towline/benches/seed` has the same shapes over real
//! sockets.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use towline_lab::shapes::{PATHS, SHAPES, play};

/// Everything random in the simulated network follows from it.
const SEED: u64 = 1;

fn seed(criterion: &mut Criterion) {
    for shape in SHAPES {
        let mut group = criterion.benchmark_group(shape.id);
        // Criterion plans by the wall's clock; another play of the same seed says nothing new.
        group
            .sampling_mode(SamplingMode::Flat)
            .sample_size(10)
            .warm_up_time(Duration::from_nanos(1))
            .measurement_time(Duration::from_millis(300))
            .throughput(Throughput::Bytes(shape.total()));
        for path in PATHS {
            let mut sample = 0;
            group.bench_function(path.name, |bencher| {
                bencher.iter_custom(|iterations| {
                    let played = (0..iterations).map(|_| match play(&shape, &path, SEED) {
                        Ok(played) => played.whole,
                        Err(error) => panic!("{error}"),
                    });
                    let whole: Duration = played.sum();
                    // Criterion divides by the variance, which must not be zero.
                    sample += 1;
                    whole + Duration::from_nanos(iterations * (sample % 2))
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, seed);
criterion_main!(benches);
