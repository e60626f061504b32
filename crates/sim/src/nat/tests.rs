use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u32) -> Time {
    Time::ZERO + SECOND * seconds
}

fn parsed(text: &str) -> NatConfig {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_setting_is_read_and_printed_back() {
    let all = parsed("rebind=5s;9s,every=2s,idle=30s,change=address");
    assert_eq!(
        all,
        NatConfig {
            rebind_at: vec![at(5), at(9)],
            every: Some(2 * SECOND),
            idle: Some(30 * SECOND),
            change: Remap::Address,
        }
    );
    for text in [
        "rebind=5s;9s,every=2s,idle=30s,change=address",
        "idle=1500ms",
        "change=same",
    ] {
        let config = parsed(text);
        assert_eq!(parsed(&config.to_string()), config, "{config}");
    }
}

#[test]
fn errors_quote_the_item_at_fault() {
    for (text, item, problem) in [
        ("rebind=9s;5s", "rebind=9s;5s", "must rise"),
        ("rebind=9", "rebind=9", "has no unit"),
        ("every=0s", "every=0s", "never lets"),
        ("idle=0s", "idle=0s", "never lets"),
        ("idle=1s,change=colour", "change=colour", "is none of"),
        ("idle=1s,idle=2s", "idle=2s", "given twice"),
        ("reboot=1s", "reboot=1s", "no such setting"),
        ("idle", "idle", "no name=value"),
        ("", "", "no name=value"),
    ] {
        let error = text.parse::<NatConfig>().unwrap_err();
        assert_eq!(error.item(), item);
        assert!(error.problem().contains(problem), "{text}: {error}");
    }
}

#[test]
fn listed_and_repeated_times_are_one_sequence() {
    let config = parsed("rebind=1s;5s,every=2s");
    let mut times = Vec::new();
    let mut now = Time::ZERO;
    while let Some(next) = config.next_rebinding(now).filter(|next| *next <= at(6)) {
        times.push(next);
        now = next;
    }
    assert_eq!(times, [1, 2, 4, 5, 6].map(at));
    assert_eq!(NatConfig::default().next_rebinding(Time::ZERO), None);
    assert_eq!(config.next_rebinding(Time::MAX), None);
}

#[test]
fn a_mapping_begins_with_what_the_inside_sends() {
    let mut nat = Nat::new(parsed("rebind=5s"), Time::ZERO);
    assert!(!nat.lets_in(at(1)));
    assert_eq!(nat.on_outbound(at(2)), None);
    assert!(nat.lets_in(at(4)));
    assert!(!nat.lets_in(at(5)));
    assert_eq!(nat.on_outbound(at(6)), Some(Remap::Port));
    assert!(nat.lets_in(at(7)));
    assert_eq!(nat.on_outbound(at(8)), None);
}

#[test]
fn traffic_either_way_keeps_an_idle_mapping() {
    let mut nat = Nat::new(parsed("idle=3s,change=same"), Time::ZERO);
    nat.on_outbound(at(0));
    assert!(nat.lets_in(at(2)));
    assert!(nat.lets_in(at(4)));
    assert_eq!(nat.on_outbound(at(6)), None);
    assert!(!nat.lets_in(at(9)));
    // What was refused does not count as traffic.
    assert!(!nat.lets_in(at(11)));
    assert_eq!(nat.on_outbound(at(12)), Some(Remap::Same));
}
