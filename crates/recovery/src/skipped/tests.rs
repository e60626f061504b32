use super::*;

fn left_out(key: u64, below: u64) -> Vec<u64> {
    let mut schedule = SkippedNumbers::new(key);
    (0..below)
        .filter(|next| schedule.leaves_out(*next))
        .collect()
}

#[test]
fn every_block_leaves_out_one_number_and_none_the_first() {
    for key in 0..200 {
        let numbers = left_out(key, 10 * BLOCK);
        let blocks: Vec<u64> = numbers.iter().map(|number| number / BLOCK).collect();
        assert_eq!(blocks, (0..10).collect::<Vec<_>>(), "{key}");
        assert!(numbers[0] > 0);
    }
}

#[test]
fn places_differ_from_key_to_key_and_from_block_to_block() {
    let all: std::collections::BTreeSet<u64> = (0..100)
        .flat_map(|key| left_out(key, 4 * BLOCK))
        .map(|number| number % BLOCK)
        .collect();
    assert!(all.len() > 150, "{}", all.len());
    assert_ne!(left_out(1, 20 * BLOCK), left_out(2, 20 * BLOCK));
}

#[test]
fn a_range_is_judged_alike_however_old_it_is() {
    let mut schedule = SkippedNumbers::new(7);
    let newest = 300 * BLOCK;
    let numbers: Vec<u64> = (0..newest)
        .filter(|next| schedule.leaves_out(*next))
        .collect();
    assert_eq!(numbers.len(), 300);
    for pair in numbers.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        assert_eq!(schedule.first_in(&(first..=first)), Some(first));
        assert_eq!(schedule.first_in(&(first..=second)), Some(first));
        if first + 1 < second {
            assert_eq!(schedule.first_in(&(first + 1..=second - 1)), None);
        }
        assert_eq!(schedule.first_in(&(first + 1..=second)), Some(second));
        assert_eq!(schedule.first_in(&(first + 1..=newest - 1)), Some(second));
    }
}
