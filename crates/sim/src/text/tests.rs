use super::*;

fn parsed(text: &str) -> LinkConfig {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn complaint(text: &str) -> (String, String) {
    let error = text.parse::<LinkConfig>().unwrap_err();
    (error.item().to_owned(), error.problem().to_owned())
}

#[test]
fn every_setting_is_read() {
    let config = parsed(
        "rate=100mbit,delay=50ms,jitter=2ms,order=any,queue=64kb,aqm=codel,ecn=on,police=5mbit:32kb,overhead=28,loss=2%,reorder=1%,dup=0.5%,\
         corrupt=0.1%,truncate=0.01,drop=1+7,blackout=5s+5s,blackout=20s+500ms,mtu=1400;5s:1200,icmp=on,mend=on,remark=bleach",
    );
    let seconds = |s: f64| Time::ZERO + Duration::from_secs_f64(s);
    assert_eq!(
        config,
        LinkConfig {
            rate: Some(100_000_000),
            schedule: None,
            delay: Duration::from_millis(50),
            jitter: Duration::from_millis(2),
            keep_order: false,
            queue: Some(64_000),
            aqm: Aqm::CODEL,
            ecn: true,
            policer: Some(Policer {
                rate: 5_000_000,
                burst: 32_000,
            }),
            overhead: 28,
            loss: LossModel::Bernoulli(0.02),
            drop_list: vec![1, 7],
            duplicate: 0.005,
            reorder: 0.01,
            reorder_delay: DEFAULT_REORDER_DELAY,
            corrupt: 0.001,
            truncate: 0.01,
            blackouts: vec![seconds(5.0)..seconds(10.0), seconds(20.0)..seconds(20.5)],
            mtu: Some(1400),
            mtu_steps: vec![(seconds(5.0), 1200)],
            icmp: true,
            mend: true,
            ecn_rewrite: Some(EcnRewrite::Bleach),
        }
    );
}

#[test]
fn units_and_fractions_are_exact() {
    assert_eq!(parsed("rate=1.5mbit").rate, Some(1_500_000));
    assert_eq!(parsed("rate=2Gbit").rate, Some(2_000_000_000));
    assert_eq!(parsed("rate=18446744073709551615bit").rate, Some(u64::MAX));
    assert_eq!(parsed("queue=64kib").queue, Some(65_536));
    assert_eq!(parsed("delay=0.000000001s").delay, Duration::from_nanos(1));
    assert_eq!(parsed("delay=250us").delay, Duration::from_micros(250));
    assert_eq!(parsed("loss=0%").loss, LossModel::None);
    assert_eq!(
        parsed("reorder=3%+20ms").reorder_delay,
        Duration::from_millis(20)
    );
}

#[test]
fn a_named_network_can_be_the_base() {
    assert_eq!(parsed("satellite"), Profile::Satellite.link());
    let config = parsed("lte, loss=5%");
    assert_eq!(config.delay, Profile::Lte.link().delay);
    assert_eq!(config.loss, LossModel::Bernoulli(0.05));
    assert_eq!(complaint("loss=5%,lte").0, "lte");
}

#[test]
fn queue_settings_are_read() {
    assert_eq!(
        parsed("rate=1mbit,aqm=red:5kb:15kb:10%").aqm,
        Aqm::Red {
            min: 5000,
            max: 15_000,
            max_probability: 0.1,
            weight: DEFAULT_RED_WEIGHT,
        }
    );
    let steps = parsed("steps=0s:50mbit;20s:0bit;40s:repeat")
        .schedule
        .unwrap();
    let seconds = Duration::from_secs;
    assert_eq!(
        steps.steps().collect::<Vec<_>>(),
        [(seconds(0), 50_000_000), (seconds(20), 0)]
    );
    assert_eq!(steps.repeat(), Some(seconds(40)));
    // A named network's own rate gives way.
    let lte = parsed("lte,steps=0s:5mbit;9s:1mbit");
    assert_eq!((lte.rate, lte.delay), (None, Profile::Lte.link().delay));
}

#[test]
fn burst_loss_has_short_and_long_forms() {
    let long = LossModel::GilbertElliott {
        enter_bad: 0.01,
        leave_bad: 0.3,
        loss_good: 0.001,
        loss_bad: 0.5,
    };
    assert_eq!(parsed("loss=ge:1%:30%:0.1%:50%").loss, long);
    let short = LossModel::GilbertElliott {
        enter_bad: 0.01,
        leave_bad: 0.3,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    assert_eq!(parsed("loss=ge:1%:30%").loss, short);
    assert_eq!(complaint("loss=ge:1%").0, "loss=ge:1%");
}

#[test]
fn errors_quote_the_item_at_fault() {
    for (text, item, problem) in [
        ("rate=100mbit,loss=200%", "loss=200%", "not between 0 and 1"),
        ("delay=50ms,rate=0mbit", "rate=0mbit", "carries nothing"),
        ("delay=50", "delay=50", "has no unit"),
        ("delay=50parsec", "delay=50parsec", "`parsec` is no unit"),
        ("delay=-1ms", "delay=-1ms", "no unit"),
        ("delay=1.2.3ms", "delay=1.2.3ms", "is no number"),
        ("delay=ms", "delay=ms", "is no number"),
        (
            "delay=99999999999999999999s",
            "delay=99999999999999999999s",
            "too large",
        ),
        (
            "rate=18446744073709551615gbit",
            "rate=18446744073709551615gbit",
            "too large",
        ),
        ("loss=nan", "loss=nan", "is no probability"),
        ("loss=inf%", "loss=inf%", "is no probability"),
        ("loss=", "loss=", "is no probability"),
        ("dup=1e1", "dup=1e1", "is no probability"),
        ("speed=1mbit", "speed=1mbit", "no such setting"),
        ("delay=1ms,delay=2ms", "delay=2ms", "given twice"),
        ("queue=0", "queue=0", "holds nothing"),
        ("mtu=0", "mtu=0", "carries nothing"),
        ("mtu=1452;1200", "mtu=1452;1200", "has no time"),
        ("mtu=9s:1452;5s:1200", "mtu=9s:1452;5s:1200", "must rise"),
        ("mtu=1452;5s:0", "mtu=1452;5s:0", "carries nothing"),
        ("icmp=on,delay=1ms", "icmp=on", "add mtu"),
        ("mend=on", "mend=on", "add corrupt"),
        ("remark=red", "remark=red", "none of bleach"),
        ("blackout=5s", "blackout=5s", "start+length"),
        ("blackout=5s+0s", "blackout=5s+0s", "lasts no time"),
        ("reorder=1%+0ms", "reorder=1%+0ms", "reorders nothing"),
        ("order=maybe", "order=maybe", "keep or any"),
        ("drop=0", "drop=0", "counted from 1"),
        ("drop=a", "drop=a", "no datagram's place"),
        ("fast", "fast", "no named network"),
        ("rate=1mbit,aqm=fq", "aqm=fq", "is none of droptail"),
        ("rate=1mbit,aqm=codel:5ms", "aqm=codel:5ms", "codel:TARGET"),
        (
            "rate=1mbit,aqm=codel:0ms:100ms",
            "aqm=codel:0ms:100ms",
            "target of 0",
        ),
        (
            "rate=1mbit,aqm=codel:5ms:1ms",
            "aqm=codel:5ms:1ms",
            "shorter than its target",
        ),
        (
            "rate=1mbit,aqm=red:0:9kb:10%",
            "aqm=red:0:9kb:10%",
            "minimum must be above 0",
        ),
        (
            "rate=1mbit,aqm=red:9kb:9kb:10%",
            "aqm=red:9kb:9kb:10%",
            "above its minimum",
        ),
        (
            "rate=1mbit,aqm=red:3kb:9kb:0%",
            "aqm=red:3kb:9kb:0%",
            "probability must be above 0",
        ),
        (
            "rate=1mbit,aqm=red:3kb:9kb:1%:2",
            "aqm=red:3kb:9kb:1%:2",
            "weight must be",
        ),
        (
            "rate=1mbit,aqm=step:0ms,ecn=on",
            "aqm=step:0ms",
            "marks it all",
        ),
        ("rate=1mbit,aqm=step:1ms", "aqm=step:1ms", "add ecn=on"),
        ("aqm=codel,delay=1ms", "aqm=codel", "add rate or steps"),
        ("rate=1mbit,ecn=on", "ecn=on", "add aqm"),
        ("rate=1mbit,ecn=yes", "ecn=yes", "on or off"),
        ("police=5mbit", "police=5mbit", "RATE:BURST"),
        ("police=0bit:3kb", "police=0bit:3kb", "lets nothing through"),
        ("police=5mbit:0", "police=5mbit:0", "lets nothing through"),
        (
            "rate=1mbit,steps=0s:1mbit",
            "steps=0s:1mbit",
            "either rate or steps",
        ),
        (
            "steps=0s:1mbit,rate=1mbit",
            "steps=0s:1mbit",
            "either rate or steps",
        ),
        ("steps=", "steps=", "is no step"),
        ("steps=1s:1mbit", "steps=1s:1mbit", "start at 0s"),
        (
            "steps=0s:1mbit;9s:0bit",
            "steps=0s:1mbit;9s:0bit",
            "never leave",
        ),
        (
            "steps=0s:1mbit;0s:2mbit",
            "steps=0s:1mbit;0s:2mbit",
            "start later",
        ),
        (
            "steps=0s:0bit;9s:repeat",
            "steps=0s:0bit;9s:repeat",
            "carries nothing",
        ),
        (
            "steps=9s:repeat;0s:1mbit",
            "steps=9s:repeat;0s:1mbit",
            "repeat must come last",
        ),
        (
            "steps=0s:1mbit;0s:repeat",
            "steps=0s:1mbit;0s:repeat",
            "repeat later",
        ),
        ("steps=0s:fast", "steps=0s:fast", "write a rate"),
        ("", "", "empty item"),
        ("delay=1ms,,loss=1%", "delay=1ms,,loss=1%", "empty item"),
        ("delay=1\u{fc}", "delay=1\u{fc}", "is no unit"),
    ] {
        let (got_item, got_problem) = complaint(text);
        assert_eq!(got_item, item);
        assert!(got_problem.contains(problem), "{text}: {got_problem}");
    }
}

#[test]
fn printed_form_reads_back_as_the_same_link() {
    for text in [
        "rate=100mbit,delay=50ms,jitter=2ms,order=any,queue=64kb,overhead=28,loss=2%,reorder=1%,dup=0.5%,corrupt=0.1%,truncate=3%,drop=1+7,blackout=5s+5s,blackout=20s+500ms,mtu=1400",
        "mtu=1452;5s:1200;20s:1452,icmp=on,remark=ect1",
        "mtu=5s:1200,remark=ce,corrupt=1%,mend=on",
        "rate=1234567bit,delay=1234567ns,loss=ge:1%:30%:0.1%:33.3%",
        "local",
        "poor-cellular",
        "lte,reorder=0.7%+3ms",
        "rate=10mbit,aqm=codel",
        "rate=10mbit,aqm=codel:15ms:300ms,ecn=on",
        "rate=10mbit,aqm=red:5kib:15kb:10%,ecn=on,police=5mbit:32kb",
        "rate=10mbit,aqm=red:5kb:15kb:10%:0.0000001",
        "rate=10mbit,aqm=step:1ms,ecn=on",
        "steps=0s:50mbit;20s:10mbit;40s:50mbit,aqm=droptail,ecn=off",
        "steps=0s:1.5mbit;10ms:0bit;250ms:repeat,queue=64kb",
    ] {
        let config = parsed(text);
        assert_eq!(parsed(&config.to_string()), config, "{config}");
    }
    assert_eq!(LinkConfig::default().to_string(), "local");
}
