//! The page that stays: what was run, where, and what came out.

use std::path::Path;

use bench_runner::machine::Machine;
use bench_runner::{Outcome, page};

use crate::chart;
use crate::figures::Figures;
use crate::plan::Setting;

/// Writes the page and its chart and returns the page's path in the repository.
pub(crate) fn write(
    root: &Path,
    machine: &Machine,
    figures: &Figures,
    setting: &Setting,
    table: &str,
) -> Outcome<String> {
    let title = "Towline beside Linux TCP on one bottleneck";
    let draw = |path: &Path| chart::draw(path, figures, setting);
    page::write(root, machine, "bench-neighbour", title, draw, |chart| {
        format!(
            "`towline relay --tun` between two network namespaces, fresh for every run, in real time; \
         senders in one, receivers in the other, all flows start together. `towline-NAME` is \
         `towline perf` with `--cc NAME`, `linux-NAME` a TCP socket of this kernel with \
         TCP_CONGESTION; Linux's `bbr` is BBR version 1, Towline's is version 3. Goodput is \
         application bytes where they arrive, so headers and encryption count against a flow; bytes \
         per packet are those of full IP packets. Queue delay is what packets waited for the \
         bottleneck in each tenth of a second, its mean over time and its 95th percentile (a full \
         queue is {:.0} ms); loss is what found the queue full. Rows with `linux` on both sides \
         show what is usual.\n\n![goodput and queue delay over time]({chart})\n\n{table}",
            setting.full_queue() * 1e3,
        )
    })
}
