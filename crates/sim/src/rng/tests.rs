use super::*;

fn sequence(seed: u64, name: &str, stream: u64) -> Vec<u64> {
    let mut draw = Draw::new(seed, name, stream);
    (0..8).map(|_| draw.below(u64::MAX)).collect()
}

#[test]
fn streams_differ_by_seed_name_and_number_only() {
    let base = sequence(1, "a", 0);
    assert_eq!(base, sequence(1, "a", 0));
    assert_ne!(base, sequence(2, "a", 0));
    assert_ne!(base, sequence(1, "b", 0));
    assert_ne!(base, sequence(1, "a", 1));
}

#[test]
fn certain_and_impossible_chances_are_exact() {
    let mut draw = Draw::new(7, "x", 0);
    for _ in 0..1000 {
        assert!(draw.chance(1.0));
        assert!(!draw.chance(0.0));
        assert_eq!(draw.below(1), 0);
        assert!(draw.below(10) < 10);
    }
    assert_eq!(draw.below(0), 0);
}

#[test]
fn the_first_draw_of_a_seed_never_changes() {
    // Kept seeds must replay for ever: a new generator or key derivation fails here.
    assert_eq!(
        sequence(1, "a", 0)[..2],
        [10_877_248_858_928_082_412, 8_178_706_538_597_545_427]
    );
}
