//! What datagrams of no connection may ask of a server, shared out by where they come from.
//!
//! Two kinds of things are shared: work in a window of time ([`Budget`]) and places ([`Places`]).
//! Both follow one rule, [`within_share`]: the more is taken, the less one source may have, and a
//! quarter is kept for those that have next to nothing yet. Sources are prefixes, counted in tables
//! of fixed size behind a secret hash; nothing here allocates for a datagram or looks at more than
//! [`ROWS`] cells.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use towline_wire::Time;

use super::keyed::KeyedState;

/// Cells in which one prefix is counted; the least of them is its count. A prefix suffers from
/// others only if each of its cells is also one of theirs: with 1,000 busy prefixes one in 500.
const ROWS: usize = 4;

/// Cap: cells of one row in the table of a [`Budget`] or of [`Places`].
pub(crate) const MAX_PREFIX_CELLS: usize = 4096;

const INDEX_BITS: u32 = MAX_PREFIX_CELLS.ilog2();

/// A source may have so many times what is left beside [`RESERVE`]: alone, three fifths of all.
const SHARE: u64 = 4;
/// One part in so many is kept for sources that have no more than [`FIRST`] things.
const RESERVE: u64 = 4;
/// So many of a thing every source finds, unless that many sources take all.
const FIRST: u64 = 2;

/// Length of a budget's window of time.
pub(crate) const WINDOW_NANOS: u64 = 250_000_000;

/// The prefix a datagram came from, as its cells.
///
/// A prefix is an IPv4 /24 or an IPv6 /48: what one site holds, so that it cannot grow its part by
/// changing addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source([u16; ROWS]);

impl Source {
    pub(super) fn of(keys: &KeyedState, ip: IpAddr) -> Self {
        let mut hasher = keys.build_hasher();
        match ip.to_canonical() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()[..3]),
            IpAddr::V6(ip) => hasher.write(&ip.octets()[..6]),
        }
        let mut hash = hasher.finish();
        Self(std::array::from_fn(|_| {
            let index = hash as usize % MAX_PREFIX_CELLS;
            hash >>= INDEX_BITS;
            index as u16
        }))
    }

    /// Where its cells lie in a table of [`ROWS`] rows.
    fn cells(self) -> impl Iterator<Item = usize> {
        let rows = self.0.into_iter().enumerate();
        rows.map(|(row, index)| row * MAX_PREFIX_CELLS + usize::from(index))
    }
}

/// Whether a source that has `mine` may have `more`, when `used` of `total` are taken.
fn within_share(mine: u64, more: u64, used: u64, total: u64) -> bool {
    if mine + more <= FIRST * more {
        return used + more <= total;
    }
    let open = total - total / RESERVE;
    let free = open.saturating_sub(used);
    more <= free && mine + more <= SHARE * free
}

/// What one source spent in one window.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    window: u16,
    units: u16,
}

/// Work that may be done without a connection in a window of time. A unit is about a microsecond.
#[derive(Debug)]
pub(super) struct Budget {
    /// Units of one window.
    units: u64,
    window: u64,
    used: u64,
    /// [`ROWS`] rows; empty until something is spent.
    cells: Vec<Spent>,
}

impl Budget {
    /// So many units in each [`WINDOW_NANOS`], at most 100,000: what one source may have of them
    /// must fit a cell.
    pub(super) fn new(units: u64) -> Self {
        debug_assert!(units <= 100_000, "more than cells can count");
        Self {
            units,
            window: 0,
            used: 0,
            cells: Vec::new(),
        }
    }

    /// Spends `cost` units on `source`; `false` if they are more than its share.
    pub(super) fn take(&mut self, now: Time, source: Source, cost: u64) -> bool {
        let window = now.as_nanos() / WINDOW_NANOS;
        if window != self.window {
            self.window = window;
            self.used = 0;
        }
        if self.cells.is_empty() {
            self.cells = vec![Spent::default(); ROWS * MAX_PREFIX_CELLS];
        }
        // A cell nobody wrote for four and a half hours may count once more.
        let window = window as u16;
        let spent = |cell: &Spent| match cell.window == window {
            true => u64::from(cell.units),
            false => 0,
        };
        let cells = source.cells().map(|at| spent(&self.cells[at]));
        let mine = cells.min().unwrap_or(0);
        if !within_share(mine, cost, self.used, self.units) {
            return false;
        }
        self.used += cost;
        for at in source.cells() {
            let cell = &mut self.cells[at];
            let units = spent(cell) + cost;
            *cell = Spent {
                window,
                units: u16::try_from(units).unwrap_or(u16::MAX),
            };
        }
        true
    }
}

/// Things held, each by one source until it is given back.
#[derive(Debug, Default)]
pub(super) struct Places {
    used: usize,
    /// [`ROWS`] rows; empty until something is held.
    cells: Vec<u32>,
}

impl Places {
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether `source` may hold one more of `total`.
    pub(super) fn may_take(&self, source: Source, total: usize) -> bool {
        let cells = source.cells().map(|at| self.cells.get(at).copied());
        let mine = cells.min().flatten().unwrap_or(0);
        within_share(u64::from(mine), 1, self.used as u64, total as u64)
    }

    pub(super) fn take(&mut self, source: Source) {
        if self.cells.is_empty() {
            self.cells = vec![0; ROWS * MAX_PREFIX_CELLS];
        }
        self.used += 1;
        for at in source.cells() {
            self.cells[at] += 1;
        }
    }

    pub(super) fn give_back(&mut self, source: Source) {
        debug_assert!(self.used > 0, "given back more than was taken");
        self.used -= 1;
        for at in source.cells() {
            self.cells[at] -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
