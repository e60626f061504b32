//! x
#![allow(clippy::print_stdout)]
use std::time::Duration;
use towline_lab::scenario::*;
use towline_quic::*;
fn main() {
    let r = 100_000_000;
    let rtt = Duration::from_millis(200);
    for cc in ["newreno", "cubic"] {
        for seed in 1..=3 {
            let mut out = vec![];
            for hy in [false, true] {
                let mut f = Flow::bulk("x", cc.parse().unwrap()).with_traffic(Traffic::Streams {
                    count: 1,
                    bytes: 20_000_000,
                });
                f.transport.hystart = hy;
                f.transport.ack_frequency = false;
                f.active = Duration::from_millis(37 * (seed - 1))..Duration::MAX;
                let mut s = Scenario::dumbbell(r, rtt, bdp(r, rtt) / 2, Duration::from_secs(60));
                s.seed = seed;
                let o = run(&s.flow(f)).unwrap();
                let st = o.flows[0].stats.clone().unwrap();
                out.push((st.packets_lost, o.flows[0].took().unwrap().as_secs_f64()));
            }
            println!(
                "{cc} {seed}: classic {:?} hystart {:?} lost ratio {:.2} time ratio {:.3}",
                out[0],
                out[1],
                out[1].0 as f64 / out[0].0 as f64,
                out[1].1 / out[0].1
            );
        }
    }
    // spurious exits: util with 1 BDP on 9 paths first 10 s
    for mb in [10u64, 50, 100] {
        for ms in [10u64, 50, 200] {
            let r = mb * 1_000_000;
            let rtt = Duration::from_millis(ms);
            let o = run(
                &Scenario::dumbbell(r, rtt, bdp(r, rtt), Duration::from_secs(10))
                    .flow(Flow::bulk("x", Algorithm::Cubic)),
            )
            .unwrap();
            let o2 = run(
                &Scenario::dumbbell(r, rtt, bdp(r, rtt), Duration::from_secs(10))
                    .flow(Flow::bulk("x", Algorithm::NewReno)),
            )
            .unwrap();
            print!(
                "{mb}x{ms}: cubic {:.3} lost {} newreno {:.3} lost {} | ",
                o.utilisation(Duration::ZERO..Duration::from_secs(10)),
                o.flows[0].stats.as_ref().unwrap().packets_lost,
                o2.utilisation(Duration::ZERO..Duration::from_secs(10)),
                o2.flows[0].stats.as_ref().unwrap().packets_lost
            );
        }
    }
    println!();
}
