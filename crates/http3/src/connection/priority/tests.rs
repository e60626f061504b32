use towline_wire::{Direction, Side};

use super::*;

#[test]
fn what_is_not_understood_of_a_priority_counts_as_not_said() {
    let of = |urgency, incremental| Priority {
        urgency,
        incremental,
    };
    for (value, expected) in [
        ("", of(3, false)),
        ("u=0", of(0, false)),
        ("u=7, i", of(7, true)),
        ("i=?1,u=5", of(5, true)),
        ("i, i=?0", of(3, false)),
        ("u=5;x=1, y", of(5, false)),
        ("u=8", of(3, false)),
        ("u=\"1\", i=2", of(3, false)),
    ] {
        assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
    }
    assert_eq!(Priority::parse(of(1, true).emit().as_bytes()), of(1, true));
}

#[test]
fn priorities_of_64_requests_that_have_not_come_are_kept() {
    let mut early = EarlyPriorities::default();
    let id = |index| StreamId::new(Side::Client, Direction::Bidirectional, index);
    for index in 0..100 {
        early.keep(id(index), Priority::parse(b"u=1"));
    }
    assert_eq!(early.0.len(), MAX_EARLY_PRIORITIES);
    early.keep(id(0), Priority::parse(b"u=2"));
    assert_eq!(early.take(id(0)), Some(Priority::parse(b"u=2")));
    assert_eq!(early.take(id(0)), None);
    assert_eq!(early.take(id(64)), None);
}
