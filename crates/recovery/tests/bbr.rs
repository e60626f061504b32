//! BBR over a simulated bottleneck.

mod path;

use path::{Path, Report, Sender, mbit, ms, run};
use towline_recovery::Algorithm;

fn bbr() -> Sender {
    Sender::new(Algorithm::Bbr)
}

fn show(name: &str, report: &Report, every: usize) {
    if std::env::var_os("TOWLINE_TRACE").is_none() { return; }
    eprintln!("== {name} dropped {}/{}", report.dropped, report.packets);
    for bin in (0..report.carried.len().min(report.delay.len())).step_by(every) {
        let c: u64 = report.carried[bin..(bin + every).min(report.carried.len())].iter().sum();
        eprint!("{:5.1}s {:6.2} Mbit/s q {:6.1} ms |", bin as f64 / 10.0, c as f64 * 8.0 / 1e5 / every as f64, report.delay[bin].as_secs_f64() * 1e3);
        for f in &report.flows {
            let s = &f.stats[bin];
            let a: u64 = f.arrived[bin..(bin + every).min(f.arrived.len())].iter().sum();
            eprint!(" got {:6.2} w {:5} fl {:5} pace {:6.2} minrtt {:4} lost {} ev {}/{} {}|", a as f64 * 8.0 / 1e5 / every as f64, s.cwnd / 1200, s.bytes_in_flight / 1200, s.pacing_rate.unwrap_or(0) as f64 * 8.0 / 1e6, s.min_rtt.unwrap_or_default().as_millis(), s.packets_lost, s.congestion_events, s.spurious_congestion_events, if s.in_slow_start { "SS" } else { "" });
        }
        eprintln!();
    }
}

#[test]
fn one_flow_fills_the_bottleneck() {
    for rate in [10, 50, 100] {
        for rtt in [10, 50, 200] {
            let report = run(&Path::new(mbit(rate), ms(rtt)), &[bbr()], 60);
            let used = report.utilisation(10..60, mbit(rate));
            eprintln!("{rate} Mbit/s {rtt} ms: {used:.3} delay {:.1} ms drops {}/{}", report.mean_delay(10..60) * 1e3, report.dropped, report.packets);
            show("u", &report, 5);
        }
    }
}

#[test]
fn deep() {
    let mut p = Path::new(mbit(20), ms(40));
    p.queue *= 4;
    let report = run(&p, &[bbr()], 60);
    eprintln!("deep {} ms used {}", report.mean_delay(0..60) * 1e3, report.utilisation(10..60, mbit(20)));
    show("deep", &report, 1);
}

#[test]
fn lossy() {
    let mut p = Path::new(mbit(100), ms(165));
    p.loss = 10_000;
    let report = run(&p, &[bbr()], 60);
    eprintln!("lossy {} whole {}", report.utilisation(10..60, mbit(100)), report.utilisation(0..21, mbit(100)));
    show("lossy", &report, 2);
}

#[test]
fn step() {
    let mut p = Path::new(mbit(50), ms(40));
    p.rates = vec![(ms(0), mbit(50)), (ms(20_000), mbit(10)), (ms(40_000), mbit(50))];
    let report = run(&p, &[bbr()], 60);
    show("step", &report, 1);
    eprintln!("step delay {:?} after {:.3} {:.3}", report.delay[225..400].iter().map(|d| d.as_millis()).collect::<Vec<_>>(), report.utilisation(44..60, mbit(50)), report.utilisation(45..46, mbit(50)));
}

#[test]
fn two() {
    for n in [2, 4, 8] {
    let p = Path::new(mbit(50), ms(50));
    let senders: Vec<_> = (0..n).map(|i| Sender { start: ms(5000 * i), ..bbr() }).collect();
    let report = run(&p, &senders, 120);
    show("fair", &report, 5);
    eprintln!("{n} jain {:.4} used {:.3} {:?}", report.fairness(60..120), report.utilisation(60..120, mbit(50)), (0..n as usize).map(|f| report.goodput(f, 60..120) as u64 / 1000).collect::<Vec<_>>());
    }
}

#[test]
fn cubic() {
    for q in [1, 4] {
        let mut p = Path::new(mbit(50), ms(40));
        p.queue *= q;
        let report = run(&p, &[bbr(), Sender::new(Algorithm::Cubic)], 120);
        show("cubic", &report, 5);
        eprintln!("cubic {q}: bbr share {:.3}", report.goodput(0, 10..120) / (report.goodput(0, 10..120) + report.goodput(1, 10..120)));
    }
}

#[test]
fn explore() {
    // step over seeds and rtts
    for rtt in [10, 40, 100] { for seed in 1..6 {
        let mut p = Path::new(mbit(50), ms(rtt));
        p.seed = seed;
        p.rates = vec![(ms(0), mbit(50)), (ms(20_000 + 300 * seed), mbit(10)), (ms(40_000), mbit(50))];
        let report = run(&p, &[bbr()], 60);
        let start = 200 + 3 * seed as usize;
        let settled = (start..400).rev().find(|&b| report.delay[b] > ms(rtt)).map(|b| (b as f64 - start as f64) / 10.0);
        let first = (start + 3..400).find(|&b| report.delay[b] <= ms(rtt)).map(|b| (b as f64 - start as f64) / 10.0);
        let up = (400..600).find(|&b| report.carried[b] as f64 * 80.0 > 0.9 * 50e6).map(|b| b as f64 / 10.0 - 40.0);
        if rtt == 40 && seed == 2 || rtt == 100 && seed == 2 { show("stepseed", &report, 1); } eprintln!("step rtt {rtt} seed {seed}: last above {settled:?} first below {first:?} up {up:?} used low {:.3}", report.utilisation(30..40, mbit(10)));
    }}
    // policer
    let mut p = Path::new(mbit(100), ms(40));
    p.policer = Some((mbit(10), 100_000));
    let r = run(&p, &[bbr()], 30);
    show("policer", &r, 5);
    eprintln!("policer used {:.3} drops {:.3}", r.utilisation(10..30, mbit(10)), r.dropped as f64 / r.packets as f64);
    // lumps
    for l in [10, 50] {
        let mut p = Path::new(mbit(50), ms(20));
        p.lumps = Some(ms(l));
        p.queue *= 4;
        let r = run(&p, &[bbr()], 30);
        show("lumps", &r, 5);
        eprintln!("lumps {l} used {:.3} delay {:.1}", r.utilisation(5..30, mbit(50)), r.mean_delay(5..30) * 1e3);
    }
    // sub-packet
    let mut p = Path::new(30_000, ms(20));
    p.queue = 20 * 1200;
    let r = run(&p, &[bbr()], 60);
    show("sub", &r, 10);
    eprintln!("sub used {:.3} delay {:.1} drops {}/{} to {}", r.utilisation(5..60, 30_000), r.mean_delay(5..60) * 1e3, r.dropped, r.packets, r.flows[0].timeouts);
    // x10
    for (a, b) in [(10, 100), (100, 10)] { for q in [1, 4] {
        let mut p = Path::new(mbit(a.max(b)), ms(40));
        p.queue = p.queue * q / 2;
        p.rates = vec![(ms(0), mbit(a)), (ms(20_000), mbit(b))];
        let r = run(&p, &[bbr()], 40);
        show("x10", &r, 2);
        let up = (200..400).find(|&bin| r.carried[bin] as f64 * 80.0 > 0.9 * b as f64 * 1e6).map(|b| b as f64 / 10.0 - 20.0);
        let settled = (200..400).rev().find(|&b| r.delay[b] > ms(40)).map(|b| b as f64 / 10.0 - 20.0);
        eprintln!("x10 {a}->{b} q {q}: up {up:?} settled {settled:?} {:.3}", r.utilisation(30..40, mbit(b)));
    }}
    // reorder
    let mut p = Path::new(mbit(50), ms(40));
    p.reorder = Some((97, ms(5)));
    let r = run(&p, &[bbr()], 30);
    show("reorder", &r, 5);
    let s = r.flows[0].stats.last().unwrap();
    eprintln!("reorder used {:.3} events {} spurious {} lost {} sp {}", r.utilisation(5..30, mbit(50)), s.congestion_events, s.spurious_congestion_events, s.packets_lost, s.packets_spuriously_lost);
    // app limited
    let mut app = bbr();
    app.writes = Some(mbit(5));
    let r = run(&Path::new(mbit(50), ms(40)), &[app], 30);
    show("app", &r, 5);
    // idle
    let mut app = bbr();
    app.silent = vec![ms(10_000)..ms(17_000)];
    let r = run(&Path::new(mbit(50), ms(40)), &[app], 30);
    show("idle", &r, 1);
    // tiny and huge rtt
    for rtt in [1, 2, 1000] {
        let r = run(&Path::new(mbit(50), ms(rtt)), &[bbr()], 60);
        show("rtt", &r, 5);
        eprintln!("rtt {rtt}: used {:.3} delay {:.1} drops {}/{}", r.utilisation(20..60, mbit(50)), r.mean_delay(5..60) * 1e3, r.dropped, r.packets);
    }
    for seed in 1..6 {
        let mut p = Path::new(mbit(50), ms(50)); p.seed = seed;
        for n in [2, 4, 8] {
            let senders: Vec<_> = (0..n).map(|i| Sender { start: ms(5000 * i), ..bbr() }).collect();
            let report = run(&p, &senders, 120);
            eprintln!("fair seed {seed} {n} jain {:.4} used {:.3}", report.fairness(60..120), report.utilisation(60..120, mbit(50)));
        }
        for q in [1, 4] {
            let mut p = Path::new(mbit(50), ms(40));
            p.seed = seed;
            p.queue *= q;
            let report = run(&p, &[bbr(), Sender::new(Algorithm::Cubic)], 120);
            eprintln!("cubic seed {seed} {q}: bbr share {:.3}", report.goodput(0, 10..120) / (report.goodput(0, 10..120) + report.goodput(1, 10..120)));
        }
        let mut p = Path::new(mbit(100), ms(165)); p.loss = 10_000; p.seed = seed;
        let r = run(&p, &[bbr()], 60);
        eprintln!("lossy {seed} {:.3} {:.3}", r.utilisation(0..21, mbit(100)), r.utilisation(10..60, mbit(100)));
    }
}

#[test]
fn thin() {
    for t in [8, 32] {
    for rate in [10, 50, 100] {
        for rtt in [10, 50, 200] {
            let mut p = Path::new(mbit(rate), ms(rtt));
            p.thinning = t;
            let report = run(&p, &[bbr()], 60);
            eprintln!("thin {t} {rate} Mbit/s {rtt} ms: {:.3} delay {:.1} ms drops {}/{}", report.utilisation(10..60, mbit(rate)), report.mean_delay(10..60) * 1e3, report.dropped, report.packets);
        }
    }
    let mut p = Path::new(mbit(20), ms(40));
    p.queue *= 4; p.thinning = t;
    let report = run(&p, &[bbr()], 60);
    eprintln!("thin {t} deep {} ms used {}", report.mean_delay(0..60) * 1e3, report.utilisation(10..60, mbit(20)));
    let mut p = Path::new(mbit(100), ms(165)); p.loss = 10_000; p.thinning = t;
    let r = run(&p, &[bbr()], 60);
    eprintln!("thin lossy {:.3} {:.3}", r.utilisation(0..21, mbit(100)), r.utilisation(10..60, mbit(100)));
    for n in [2, 4, 8] {
            let mut p = Path::new(mbit(50), ms(50)); p.thinning = t;
            let senders: Vec<_> = (0..n).map(|i| Sender { start: ms(5000 * i), ..bbr() }).collect();
            let report = run(&p, &senders, 120);
            eprintln!("thin fair {n} jain {:.4} used {:.3}", report.fairness(60..120), report.utilisation(60..120, mbit(50)));
    }
    }
    for q in [8, 16] {
        let mut p = Path::new(mbit(50), ms(40));
        p.queue *= q;
        let report = run(&p, &[bbr(), Sender::new(Algorithm::Cubic)], 120);
        eprintln!("cubic {q}: bbr share {:.3} delay {:.1}", report.goodput(0, 10..120) / (report.goodput(0, 10..120) + report.goodput(1, 10..120)), report.mean_delay(10..120)*1e3);
    }
}
