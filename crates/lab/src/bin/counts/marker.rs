//! The mark between what sets a workload up and what is counted.
//!
//! Called by every workload; `cargo xtask counts` tells callgrind its name.

use std::hint::black_box;

/// The one function whose instructions are counted; its name is what callgrind is told.
#[inline(never)]
pub(crate) fn measured_workload<R>(work: impl FnOnce() -> R) -> R {
    let result = work();
    // Something stays to be done after `work`: a tail call would leave the function too early.
    black_box(&result);
    result
}
