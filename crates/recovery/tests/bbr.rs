//! BBR over a simulated bottleneck.

mod path;

use path::{Path, Report, Sender, mbit, ms, run};
use towline_recovery::Algorithm;

fn bbr() -> Sender {
    Sender::new(Algorithm::Bbr)
}

fn show(name: &str, report: &Report, every: usize) {
    if std::env::var_os("TOWLINE_TRACE").is_none() {
        return;
    }
    eprintln!("== {name} dropped {}/{}", report.dropped, report.packets);
    for bin in (0..report.carried.len().min(report.delay.len())).step_by(every) {
        let c: u64 = report.carried[bin..(bin + every).min(report.carried.len())]
            .iter()
            .sum();
        eprint!(
            "{:5.1}s {:6.2} Mbit/s q {:6.1} ms |",
            bin as f64 / 10.0,
            c as f64 * 8.0 / 1e5 / every as f64,
            report.delay[bin].as_secs_f64() * 1e3
        );
        for f in &report.flows {
            let s = &f.stats[bin];
            let a: u64 = f.arrived[bin..(bin + every).min(f.arrived.len())]
                .iter()
                .sum();
            eprint!(
                " got {:6.2} w {:5} fl {:5} pace {:6.2} minrtt {:4} lost {} ev {}/{} {}|",
                a as f64 * 8.0 / 1e5 / every as f64,
                s.cwnd / 1200,
                s.bytes_in_flight / 1200,
                s.pacing_rate.unwrap_or(0) as f64 * 8.0 / 1e6,
                s.min_rtt.unwrap_or_default().as_millis(),
                s.packets_lost,
                s.congestion_events,
                s.spurious_congestion_events,
                if s.in_slow_start { "SS" } else { "" }
            );
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
            eprintln!(
                "{rate} Mbit/s {rtt} ms: {used:.3} delay {:.1} ms drops {}/{}",
                report.mean_delay(10..60) * 1e3,
                report.dropped,
                report.packets
            );
            show("u", &report, 5);
        }
    }
}

#[test]
fn deep() {
    let mut p = Path::new(mbit(20), ms(40));
    p.queue *= 4;
    let report = run(&p, &[bbr()], 60);
    eprintln!(
        "deep {} ms used {}",
        report.mean_delay(0..60) * 1e3,
        report.utilisation(10..60, mbit(20))
    );
    show("deep", &report, 1);
}

#[test]
fn lossy() {
    let mut p = Path::new(mbit(100), ms(165));
    p.loss = 10_000;
    let report = run(&p, &[bbr()], 60);
    eprintln!(
        "lossy {} whole {}",
        report.utilisation(10..60, mbit(100)),
        report.utilisation(0..21, mbit(100))
    );
    show("lossy", &report, 2);
}

#[test]
fn step() {
    let mut p = Path::new(mbit(50), ms(40));
    p.rates = vec![
        (ms(0), mbit(50)),
        (ms(20_000), mbit(10)),
        (ms(40_000), mbit(50)),
    ];
    let report = run(&p, &[bbr()], 60);
    show("step", &report, 1);
    eprintln!(
        "step delay {:?} after {:.3} {:.3}",
        report.delay[225..400]
            .iter()
            .map(|d| d.as_millis())
            .collect::<Vec<_>>(),
        report.utilisation(44..60, mbit(50)),
        report.utilisation(45..46, mbit(50))
    );
}

#[test]
fn two() {
    for n in [2, 4, 8] {
        let p = Path::new(mbit(50), ms(50));
        let senders: Vec<_> = (0..n)
            .map(|i| Sender {
                start: ms(5000 * i),
                ..bbr()
            })
            .collect();
        let report = run(&p, &senders, 120);
        show("fair", &report, 5);
        eprintln!(
            "{n} jain {:.4} used {:.3} {:?}",
            report.fairness(60..120),
            report.utilisation(60..120, mbit(50)),
            (0..n as usize)
                .map(|f| report.goodput(f, 60..120) as u64 / 1000)
                .collect::<Vec<_>>()
        );
    }
}

#[test]
fn cubic() {
    for q in [1, 4] {
        let mut p = Path::new(mbit(50), ms(40));
        p.queue *= q;
        let report = run(&p, &[bbr(), Sender::new(Algorithm::Cubic)], 120);
        show("cubic", &report, 5);
        eprintln!(
            "cubic {q}: bbr share {:.3}",
            report.goodput(0, 10..120) / (report.goodput(0, 10..120) + report.goodput(1, 10..120))
        );
    }
}
