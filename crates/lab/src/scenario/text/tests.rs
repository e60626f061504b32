use towline_quic::{Algorithm, TrafficClass};
use towline_sim::{EcnRewrite, NatConfig, Remap};
use towline_wire::Time;

use super::*;
use crate::Random;
use crate::scenario::{HEADERS, bdp};

const GOOD: &str = r#"
[scenario]
name = "everything"
seed = 7
duration = "40s"
pool = "8mbit"
sample = "50ms"
warmup = "5s"

[path]
rtt = "40ms"
rate = "20mbit"
queue = "1bdp"

[back]
loss = "1%"
blackout = ["5s+1s", "9s+1s"]
mtu = [1452, "5s:1200"]
icmp = true
remark = "bleach"

[[change]]
at = "30s"
rate = "20mbit"
back = { queue = "64kb" }

[[change]]
at = "20s"
rate = "10mbit"
pool = "4mbit"

[[flow]]
count = 3
stagger = "5s"

[[flow]]
name = "reno"
cc = "newreno"
start = "1s"
stop = "30s"
mtu = 1452
hystart = false
rate_limit = "4mbit"
weight = 3
class = "interactive"
ecn = false
ack_thinning = false
access_delay = "5ms"
nat = "rebind=5s,change=address"
switch = [["10s", "cubic"], ["20s", "newreno"]]

[[flow]]
traffic = "streams"
streams = 4
bytes = "100kb"
reverse = true

[[flow]]
traffic = "ping"

[[flow]]
traffic = "constant"
rate = "4mbit"
size = 1000
on = "1s"
off = "3s"
"#;

fn read(text: &str) -> Result<ScenarioText, TextError> {
    ScenarioText::parse(text, &|name| Err(format!("there is no file {name}")))
}

/// The whole of a small good text with `more` after it.
fn with(more: &str) -> String {
    format!("[scenario]\nduration = \"10s\"\n[path]\nrate = \"10mbit\"\nrtt = \"50ms\"\n{more}\n")
}

#[test]
fn every_key_reaches_the_scenario() {
    let read = read(GOOD).expect("a good text");
    let Scenario {
        name,
        seed,
        duration,
        forward,
        back,
        changes,
        flows,
        pool,
        sample_every,
        post_quantum,
    } = &read.scenario;
    assert!(!post_quantum);
    assert_eq!((name.as_str(), *seed), ("everything", 7));
    assert_eq!(*duration, Duration::from_secs(40));
    assert_eq!(*pool, NonZeroU64::new(8_000_000));
    assert_eq!(*sample_every, Duration::from_millis(50));
    assert_eq!(read.warmup, Duration::from_secs(5));

    let one_bdp = bdp(20_000_000, Duration::from_millis(40));
    for link in [forward, back] {
        assert_eq!(link.rate, Some(20_000_000));
        assert_eq!(link.delay, Duration::from_millis(20));
        assert_eq!(link.queue, Some(one_bdp));
        assert_eq!(link.overhead, HEADERS);
    }
    assert_eq!((forward.loss.mean(), back.loss.mean()), (0.0, 0.01));
    assert_eq!(back.blackouts.len(), 2);
    let at = Time::ZERO + Duration::from_secs(5);
    assert_eq!((back.mtu, &back.mtu_steps), (Some(1452), &vec![(at, 1200)]));
    assert!(back.icmp);
    assert_eq!(back.ecn_rewrite, Some(EcnRewrite::Bleach));

    // In order of time; the buffer keeps its bytes, the rest what it was.
    let [slower, faster] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(slower.at, Duration::from_secs(20));
    assert_eq!(
        (slower.pool, faster.pool),
        (NonZeroU64::new(4_000_000), None)
    );
    let link = slower.forward.as_ref().expect("a change");
    assert_eq!((link.rate, link.queue), (Some(10_000_000), Some(one_bdp)));
    assert_eq!(link.delay, Duration::from_millis(20));
    let link = faster.back.as_ref().expect("a change");
    assert_eq!((link.rate, link.queue), (Some(20_000_000), Some(64_000)));
    assert_eq!(link.loss.mean(), 0.01);

    let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "bulk 1", "bulk 2", "bulk 3", "reno", "streams", "ping", "on-off"
        ]
    );
    assert_eq!(read.groups, [0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(flows[2].active, Duration::from_secs(10)..Duration::MAX);
    let reno = &flows[3];
    assert_eq!(reno.transport.congestion, Algorithm::NewReno);
    assert_eq!(reno.transport.initial_mtu, 1452);
    assert_eq!(reno.transport.rate_limit, NonZeroU64::new(500_000));
    assert!(!reno.transport.ecn);
    let weight = std::num::NonZeroU32::new(3).expect("three");
    assert_eq!(reno.share, Some((TrafficClass::Interactive, weight)));
    assert!(!reno.transport.hystart && !reno.transport.ack_frequency);
    assert_eq!(reno.active, Duration::from_secs(1)..Duration::from_secs(30));
    assert_eq!(reno.access_delay, Duration::from_millis(5));
    assert_eq!(reno.nat, Some(NatConfig::at(at, Remap::Address)));
    assert_eq!(
        reno.switches,
        [
            (Duration::from_secs(10), Algorithm::Cubic),
            (Duration::from_secs(20), Algorithm::NewReno)
        ]
    );
    let streams = Traffic::Streams {
        count: 4,
        bytes: 100_000,
    };
    assert!(flows[4].reverse && flows[4].traffic == streams);
    let on_off = Traffic::OnOff {
        rate: 4_000_000,
        size: 1000,
        on: Duration::from_secs(1),
        off: Duration::from_secs(3),
    };
    assert_eq!(flows[6].traffic, on_off);
}

#[test]
fn a_request_and_the_size_of_the_first_flight_are_read() {
    let text =
        with("[[flow]]\ntraffic = \"request\"\nbytes = \"20kb\"\n[[flow]]\ntraffic = \"request\"");
    let text = text.replace("[scenario]", "[scenario]\npost_quantum = true");
    let read = read(&text).expect("a good text");
    assert!(read.scenario.post_quantum);
    let traffic: Vec<Traffic> = read
        .scenario
        .flows
        .iter()
        .map(|flow| flow.traffic)
        .collect();
    let bytes = [20_000, 10_000];
    assert_eq!(traffic, bytes.map(|bytes| Traffic::Request { bytes }));
}

#[test]
fn a_controller_goes_where_the_text_leaves_it_open() {
    let read = read(GOOD).expect("a good text");
    let reno = read.with_congestion(Congestion::Algorithm(Algorithm::NewReno));
    let of = |scenario: &Scenario| -> Vec<Algorithm> {
        let flows = scenario.flows[..5].iter();
        flows.map(|flow| flow.transport.congestion).collect()
    };
    assert_eq!(of(&reno), [Algorithm::NewReno; 5]);
    let cubic = read.with_congestion(Congestion::Algorithm(Algorithm::Cubic));
    assert_eq!(of(&cubic)[3], Algorithm::NewReno, "it has one of its own");
    let background = read.with_congestion(Congestion::Background);
    let under: Vec<bool> = background.flows.iter().map(|f| f.background).collect();
    assert_eq!(under[..5], [true, true, true, false, true]);
    assert!(read.is_open() && read.is_open_flow(0) && !read.is_open_flow(3));
}

#[test]
fn a_queue_is_bytes_or_products_or_time() {
    for (queue, bytes) in [
        ("\"64kb\"", 64_000),
        ("90000", 90_000),
        ("\"2bdp\"", 125_000),
        ("\"0.5bdp\"", 31_250),
        ("\"200ms\"", 250_000),
    ] {
        let read = read(&with(&format!("queue = {queue}\n[[flow]]"))).expect(queue);
        assert_eq!(read.scenario.forward.queue, Some(bytes), "{queue}");
    }
    let own = "queue = \"2bdp\"\n[forward]\nrate = \"1mbit\"\n[[flow]]";
    let read = read(&with(own)).expect("a good text");
    let [forward, back] = [read.scenario.forward, read.scenario.back];
    assert_eq!((forward.queue, back.queue), (Some(12_500), Some(125_000)));
}

#[test]
fn a_link_follows_steps_or_a_trace_and_its_queue_the_typical_rate() {
    let own = "[path]\nrtt = \"100ms\"\nqueue = \"1bdp\"\n[[flow]]\n";
    let read = |link: &str| {
        let trace = |name: &str| Ok(if name == "t" { "5\n10\n" } else { "x" }.to_owned());
        ScenarioText::parse(&format!("{own}{link}"), &trace)
    };
    let steps = "[forward]\nsteps = [\"0s:10mbit\", \"5s:2mbit\", \"10s:repeat\"]\n[back]\nrate = \"1mbit\"";
    let link = read(steps).expect("a good text").scenario.forward;
    assert_eq!(link.queue, Some(6_000_000 / 8 / 10));
    let trace = "[forward]\ntrace = \"t\"\n[back]\nrate = \"1mbit\"";
    let link = read(trace).expect("a good text").scenario.forward;
    let schedule = link.schedule.expect("a schedule");
    assert_eq!(schedule.repeat(), Some(Duration::from_millis(10)));
    // Two packets of 1500 bytes in 10 ms.
    assert_eq!(link.queue, Some(2_400_000 / 8 / 10));
    let error = read(&trace.replace("\"t\"", "\"u\"")).expect_err("no trace");
    assert!(error.to_string().contains("trace line 1: x"), "{error}");
    assert_eq!(error.line, 6);
    // Whoever says it last: a change to a plain rate ends the steps.
    let change = format!("{steps}\n[[change]]\nat = \"1s\"\nrate = \"3mbit\"");
    let scenario = read(&change).expect("a good text").scenario;
    let link = scenario.changes[0].forward.as_ref().expect("a change");
    assert_eq!(
        (link.rate, link.schedule.is_none()),
        (Some(3_000_000), true)
    );
}

#[test]
fn a_profile_comes_first_and_the_rest_over_it() {
    let text = "[path]\nloss = \"2%\"\nprofile = \"lte\"\n[[flow]]";
    let link = read(text).expect("a good text").scenario.forward;
    assert_eq!(link.rate, Some(20_000_000));
    assert_eq!(link.loss.mean(), 0.02);
    assert_eq!(link.overhead, HEADERS);
}

#[test]
fn every_mistake_names_its_line_and_what_to_write() {
    let mut wrong = Vec::new();
    for (text, line, column, words) in [
        ("[path\nrate = 1", 1, 6, &["not TOML"][..]),
        (
            "[path]\nrate = \"1mbit\"",
            1,
            1,
            &["nobody sends", "[[flow]]"],
        ),
        ("flow = 3", 1, 1, &["[[flow]]"]),
        ("[[flow]]", 1, 1, &["without a rate", "[path]"]),
        (
            "[paths]\nrate = \"1mbit\"\n[[flow]]",
            1,
            2,
            &["paths", "did you mean `path`"],
        ),
        (&with("rtt = \"50ms\""), 6, 1, &["not TOML", "duplicate"]),
        (
            &with("delay = \"5ms\""),
            5,
            1,
            &["path.rtt", "beside `delay`"],
        ),
        (
            &with("speed = 4"),
            6,
            1,
            &["path.speed = 4", "known are rate", "rtt"],
        ),
        (&with("  queue = 0"), 6, 3, &["path.queue = 0", "64kb"]),
        (&with("queue = \"-1bdp\""), 6, 1, &["`-1`", "1bdp"]),
        (
            &with("queue = \"many\""),
            6,
            1,
            &["\"many\"", "64kb", "1bdp", "500ms"],
        ),
        (&with("queue = \"900000bdp\""), 6, 1, &["possible are"]),
        (&with("loss = nan"), 6, 1, &["path.loss = nan", "no number"]),
        (&with("loss = -0.5"), 6, 1, &["-0.5", "2%"]),
        (&with("loss = 1.5"), 6, 1, &["1.5", "100%"]),
        (&with("jitter = \"99h\""), 6, 1, &["`h` is no unit"]),
        (&with("jitter = \"99s\""), 6, 1, &["60s"]),
        (&with("drop = []"), 6, 1, &["empty list"]),
        (&with("loss = \"1%,rate=5bit\""), 6, 1, &["comma"]),
        (
            &with("[[flow]]\ncc = \"bbq\""),
            7,
            1,
            &["flow 1.cc = \"bbq\"", "newreno", "cubic"],
        ),
        (&with("[[flow]]\ncc = 4"), 7, 1, &["quotes"]),
        (
            &with("[[flow]]\n[[flow]]\nstat = 1"),
            8,
            1,
            &["flow 2.stat", "did you mean `start`"],
        ),
        (&with("[[flow]]\nstart = \"10s\""), 7, 1, &["ends at 10s"]),
        (
            &with("[[flow]]\nstagger = \"6s\"\ncount = 3"),
            6,
            1,
            &["starts at 12s"],
        ),
        (
            &with("[[flow]]\nstart = \"5s\"\nstop = \"4s\""),
            8,
            1,
            &["start at 5s"],
        ),
        (&with("[[flow]]\nstop = \"11s\""), 7, 1, &["leave it out"]),
        (&with("[[flow]]\ncount = 101"), 7, 1, &["1 to 100"]),
        (
            &with("[[flow]]\ncount = 60\n[[flow]]\ncount = 60"),
            8,
            1,
            &["120 flows", "100"],
        ),
        (&with("[[flow]]\nmtu = 100"), 7, 1, &["1200"]),
        (&with("[[flow]]\nnat = \"every=0s\""), 7, 1, &["never lets"]),
        (
            &with("[[flow]]\nhystart = \"on\""),
            7,
            1,
            &["true or false"],
        ),
        (
            &with("[[flow]]\ntraffic = \"video\""),
            7,
            1,
            &["bulk, streams, request, ping, constant"],
        ),
        (
            &with("[[flow]]\ntraffic = \"streams\""),
            7,
            1,
            &["bytes = \"1mb\""],
        ),
        (
            &with("[[flow]]\ninterval = \"1s\""),
            7,
            1,
            &["flow 1.interval"],
        ),
        (
            &with("[[flow]]\ntraffic = \"constant\"\nrate = \"0mbit\""),
            8,
            1,
            &["rate of 0"],
        ),
        (
            &with("[[flow]]\ntraffic = \"constant\"\nrate = \"1gbit\"\nsize = 8"),
            8,
            1,
            &["size"],
        ),
        (
            &with("[[flow]]\ntraffic = \"constant\"\nrate = \"1mbit\"\non = \"1s\""),
            9,
            1,
            &["off"],
        ),
        (
            &with("[[flow]]\ntraffic = \"ping\"\ncc = \"cubic\""),
            8,
            1,
            &["no controller"],
        ),
        (
            &with("[[flow]]\nswitch = [[\"1s\"]]"),
            7,
            1,
            &["[[\"30s\", \"newreno\"]]"],
        ),
        (
            &with("[[flow]]\nswitch = [[\"30s\", \"cubic\"]]"),
            7,
            1,
            &["to 10s"],
        ),
        (
            &with("[[flow]]\nswitch = [[\"1s\", \"background\"]]"),
            7,
            1,
            &["as `cc`"],
        ),
        (&with("[[flow]]\nweight = 2"), 7, 1, &["pool = \"10mbit\""]),
        (
            &with("[[flow]]\nclass = \"first\""),
            7,
            1,
            &["interactive, normal, background"],
        ),
        (&with("[[flow]]\nrate_limit = \"7bit\""), 7, 1, &["from 8"]),
        (&with("ecn = true\n[[flow]]"), 6, 1, &["add aqm"]),
        (
            &with("steps = [\"0s:1mbit\"]\n[[flow]]"),
            6,
            1,
            &["either rate or steps"],
        ),
        (
            &with("trace = \"x\"\n[[flow]]"),
            6,
            1,
            &["there is no file x"],
        ),
        (&with("[[flow]]\nname = \"\""), 7, 1, &["1 to 40"]),
        (
            &with("[[change]]\nrate = \"1mbit\"\n[[flow]]"),
            6,
            1,
            &["at = \"20s\""],
        ),
        (
            &with("[[change]]\nat = \"20s\"\n[[flow]]"),
            7,
            1,
            &["end at 10s"],
        ),
        (
            &with("[[change]]\nat = \"2s\"\nrate = 0\n[[flow]]"),
            8,
            1,
            &["change 1.rate = 0", "unit"],
        ),
        ("[scenario]\nduration = \"2000h\"", 2, 1, &["unit"]),
        ("[scenario]\nduration = \"9999s\"", 2, 1, &["3600s"]),
        ("[scenario]\nduration = 60", 2, 1, &["no unit", "1.5s"]),
        ("[scenario]\nseed = -1", 2, 1, &["whole number"]),
        (
            "[scenario]\nduration = \"5s\"\nwarmup = \"5s\"",
            3,
            1,
            &["nothing to measure"],
        ),
        (
            "[scenario]\nduration = \"3600s\"\nsample = \"1ms\"\n[path]\nrate = \"1mbit\"\n[[flow]]",
            3,
            1,
            &["3600000 samples", "raise `sample`"],
        ),
    ] {
        let error = read(text).expect_err(text);
        let said = error.to_string();
        let is_said = words.iter().all(|word| said.contains(word));
        if (error.line, error.column) != (line, column) || !is_said {
            wrong.push(format!(
                "{text}\n{said}\nwithout {words:?} at {line}:{column}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_text_that_asks_for_gigabytes_is_refused() {
    let flow = |keys: &str| with(&format!("[[flow]]\n{keys}"));
    let heavy = "count = 100\ntraffic = \"constant\"\nrate = \"1gbit\"\naccess_delay = ";
    let pings =
        "count = 90\ntraffic = \"ping\"\ninterval = \"1ms\"\nsize = 65507\naccess_delay = \"60s\"";
    let steps: Vec<String> = (0..60_000)
        .map(|milli| format!("{milli}ms:1mbit"))
        .collect();
    let steps = format!("steps = \"{}\"", steps.join(";"));
    let long = with("").replace("rate = \"10mbit\"", &steps);
    let changes = "[[change]]\nat = \"1s\"\nloss = \"1%\"\n".repeat(20);
    let windows: Vec<String> = (0..300)
        .map(|second| format!("\"{second}s+1ms\""))
        .collect();
    for (text, line, words) in [
        (flow(&format!("{heavy}\"60s\"")), 6, "access links"),
        (flow(pings), 6, "access links"),
        (format!("{long}{changes}[[flow]]\n"), 55, "2000000"),
        (
            with(&format!("blackout = [{}]\n[[flow]]", windows.join(", "))),
            6,
            "200 settings",
        ),
        (
            with("[[flow]]").replace("rate = \"10mbit\"", "steps = \"0s:101gbit\""),
            4,
            "100gbit",
        ),
    ] {
        let error = read(&text).expect_err(words);
        let said = error.to_string();
        assert!(said.contains(words), "{said}");
        assert_eq!(error.line, line, "{said}");
    }
    // What is light is played.
    read(&flow(&format!("{heavy}\"50ms\""))).expect("600 MB");
    read(&format!(
        "{long}[[change]]\nat = \"1s\"\nloss = 0.1\n[[flow]]\n"
    ))
    .expect("once");
}

#[test]
fn a_text_too_long_is_refused() {
    let long = "#".repeat(MAX_TEXT + 1);
    assert!(read(&long).is_err());
}

/// Random changes of a good text are read or refused, never more.
#[test]
fn no_text_makes_the_reader_panic() {
    const WORDS: [&str; 24] = [
        "\"",
        "[",
        "]",
        "[[",
        "]]",
        "=",
        ",",
        ".",
        "-1",
        "nan",
        "inf",
        "1e400",
        "0",
        "true",
        "\"\"",
        "'''",
        "\u{fe0f}",
        "\"99999999999999999999s\"",
        "0xff",
        "1979-05-27",
        "{",
        "}",
        "\n",
        "[[flow]]\n",
    ];
    let mut refused = 0;
    for seed in 0..4000 {
        let mut random = Random::new(seed, 0);
        let mut text: Vec<char> = GOOD.chars().collect();
        for _ in 0..=random.below(4) {
            let at = random.below(text.len() as u64) as usize;
            let end = (at + random.below(12) as usize).min(text.len());
            match random.below(4) {
                0 => drop(text.drain(at..end)),
                1 => {
                    let word = WORDS[random.below(WORDS.len() as u64) as usize];
                    drop(text.splice(at..at, word.chars()));
                }
                2 => {
                    let word = WORDS[random.below(WORDS.len() as u64) as usize];
                    drop(text.splice(at..end, word.chars()));
                }
                _ => {
                    let copied: Vec<char> = text[at..end].to_vec();
                    let to = random.below(text.len() as u64) as usize;
                    drop(text.splice(to..to, copied));
                }
            }
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = read(&text) {
            refused += 1;
            let lines = text.lines().count() + 1;
            assert!((1..=lines).contains(&error.line), "seed {seed}: {error}");
            assert!(!error.problem.is_empty(), "seed {seed}");
        }
    }
    assert!(refused > 1000, "only {refused} of 4000 were refused");
}
