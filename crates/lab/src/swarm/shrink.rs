//! Finds out which features a failure needs: turns them off one by one while it persists.

use super::features::Features;
use super::{Failure, Meter, check_seed};

/// The same failure with fewer features, where there is one.
///
/// A smaller set counts if the same invariant breaks; the words may differ. Features are drawn
/// independently, so turning one off changes nothing about the others.
pub fn shrink(failure: &Failure, meter: Option<Meter>) -> Failure {
    let mut best = failure.clone();
    loop {
        let smaller = best.features.iter().find_map(|feature| {
            let features: Features = best.features.without(feature);
            let found = check_seed(best.seed, features, false, meter).err()?;
            (found.violation.invariant == failure.violation.invariant).then_some(*found)
        });
        match smaller {
            Some(found) => best = found,
            None => return best,
        }
    }
}
