use super::{TARGETS, parse_seeds, seeds};

#[test]
fn seeds_are_hexadecimal_lines_under_a_name() {
    let seeds =
        parse_seeds("# comment\nframe/ping\n  01 # PING\nframe/padded\n 06 0001\n 00*3\n").unwrap();
    assert_eq!(seeds[0].bytes, [1]);
    assert_eq!(seeds[1].bytes, [6, 0, 1, 0, 0, 0]);
    assert!(parse_seeds("frame/x\n 0g\n").is_err());
    assert!(parse_seeds("01\n").is_err());
}

#[test]
fn committed_corpora_hold_every_hand_written_seed() {
    let seeds = seeds().unwrap();
    for target in TARGETS {
        assert!(
            seeds.iter().any(|seed| seed
                .path
                .parent()
                .is_some_and(|folder| folder.ends_with(target))),
            "{target}"
        );
    }
    for seed in seeds {
        let path = seed.path.display();
        assert_eq!(
            std::fs::read(&seed.path).ok(),
            Some(seed.bytes),
            "{path}: run `cargo xtask fuzz-seeds`"
        );
    }
}
