//! What the runs come to: goodput, shares, queue delay and use, over the seconds that count.

use crate::plan::{Case, Setting};
use crate::trial::{LinkSample, Trial};

/// All cases, in the plan's order.
pub(crate) struct Figures {
    pub(crate) entries: Vec<Entry>,
}

/// One case and its runs.
pub(crate) struct Entry {
    pub(crate) case: Case,
    pub(crate) trials: Vec<Trial>,
    /// Why a run is missing.
    pub(crate) failure: Option<String>,
}

impl Figures {
    pub(crate) fn of(cases: &[Case]) -> Self {
        let entries = cases.iter().map(|case| Entry {
            case: case.clone(),
            trials: Vec::new(),
            failure: None,
        });
        Self {
            entries: entries.collect(),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| entry.failure.is_none())
    }
}

/// One run in numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Bits per second of each flow.
    pub(crate) goodput: Vec<f64>,
    /// Seconds that packets waited: the mean over time, and what 95 % of the samples stay below.
    pub(crate) queue_delay: f64,
    pub(crate) queue_delay_p95: f64,
    /// Share of the packets that found the queue full.
    pub(crate) loss: f64,
    /// Share of the rate that IP packets used.
    pub(crate) utilisation: f64,
}

impl Summary {
    pub(crate) fn of(trial: &Trial, setting: &Setting) -> Self {
        let omitted = setting.omitted() as usize;
        let goodput = trial
            .flows
            .iter()
            .map(|flow| mean(flow.goodput.iter().skip(omitted).copied()))
            .collect();
        let window = f64::from(setting.omitted())..f64::from(setting.seconds);
        let counted: Vec<&LinkSample> = trial
            .link
            .iter()
            .filter(|sample| window.contains(&sample.at))
            .collect();
        let mut delays: Vec<f64> = counted
            .iter()
            .filter_map(|sample| sample.queue_delay)
            .collect();
        delays.sort_by(f64::total_cmp);
        // Nothing at all was reported if there is no first.
        let zero = LinkSample::default();
        let first = counted.first().copied().unwrap_or(&zero);
        let last = counted.last().copied().unwrap_or(&zero);
        let packets = (last.packets - first.packets) as f64;
        let bits = (last.bytes - first.bytes) as f64 * 8.0;
        Self {
            goodput,
            queue_delay: mean(delays.iter().copied()),
            queue_delay_p95: delays
                .get(delays.len() * 95 / 100)
                .copied()
                .unwrap_or(f64::NAN),
            loss: (last.dropped - first.dropped) as f64 / packets.max(1.0),
            utilisation: bits / (last.at - first.at) / f64::from(setting.rate),
        }
    }

    /// The flow's part of what all flows got.
    pub(crate) fn share(&self, flow: usize) -> f64 {
        self.goodput[flow] / self.goodput.iter().sum::<f64>()
    }
}

/// NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / f64::from(count)
}

/// The median and, where there are several, least and largest.
pub(crate) fn spread(values: impl Iterator<Item = f64>) -> Option<(f64, Option<(f64, f64)>)> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    };
    Some((median, (values.len() > 1).then_some((first, last))))
}

#[cfg(test)]
pub(crate) mod tests;
