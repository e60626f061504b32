//! The bandwidth pool of a host: one total rate shared by many connections, on any threads.
//!
//! Every 10 ms of use the shares are worked out anew from what each member wants:
//! 1. each class that wants anything has up to a twentieth of the total for certain;
//! 2. the rest goes to Interactive, then Normal, then Background, each as far as it wants;
//! 3. within a class it is weighted max-min: nobody gets more than they want while somebody of
//!    the class who got less per weight wants more;
//! 4. what nobody wants is spread over all by weight, so that a quiet member may start at once;
//! 5. one part in 256 is kept for those without a share, so that nobody stands still.
//!
//! A member takes a smaller share at once and a larger one only when all others have had the time
//! to take their smaller ones: together they never exceed the total. It asks at most once per
//! 10 ms, when it sends; whoever asks first after 10 ms does the sum, in time linear in the members.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_wire::Time;

use crate::rtt::nanos;

/// Least time between two sums, and between two questions of a member.
const INTERVAL: Duration = Duration::from_millis(10);
/// Who has not asked for so long wants nothing.
const IDLE_AFTER: Duration = Duration::from_millis(50);
/// Shares are fractions of the total in parts of this.
const WHOLE: u64 = 1 << 40;
/// Kept for members without a share: so many parts.
const KEPT: u64 = WHOLE / 256;
/// What a class has for certain, if it wants it.
const GUARANTEED: u64 = WHOLE / 20;
const CLASSES: usize = 3;

/// Whose packets go first when not all can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrafficClass {
    /// Before all others: calls, terminals, control.
    Interactive,
    /// What a person or program waits for.
    #[default]
    Normal,
    /// What can wait.
    Background,
}

/// A total rate shared by the connections that join: a cheap handle, the same pool in every clone.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    /// Bytes per second.
    total: u64,
    seats: Vec<Option<Seat>>,
    free: Vec<usize>,
    /// When the shares were last worked out.
    solved: Option<Time>,
    /// What nobody wanted then.
    spare: u64,
    /// Scratch space of the sum.
    claims: [Vec<Claim>; CLASSES],
}

#[derive(Debug)]
struct Seat {
    class: TrafficClass,
    weight: NonZeroU32,
    /// In parts of the total; more than `WHOLE` for "all there is".
    want: u64,
    /// When it last asked.
    heard: Option<Time>,
    share: u64,
    previous_share: u64,
}

/// One seat's part in the sum.
#[derive(Clone, Copy, Debug)]
struct Claim {
    seat: usize,
    weight: u64,
    want: u64,
}

impl Pool {
    /// A pool of `total` bytes per second.
    pub fn new(total: NonZeroU64) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                total: total.get(),
                seats: Vec::new(),
                free: Vec::new(),
                solved: None,
                spare: 0,
                claims: [const { Vec::new() }; CLASSES],
            })),
        }
    }

    /// Changes the total, in bytes per second; members follow within 10 ms.
    pub fn set_total(&self, total: NonZeroU64) {
        self.lock().total = total.get();
    }

    /// The total in bytes per second.
    pub fn total(&self) -> NonZeroU64 {
        NonZeroU64::new(self.lock().total).unwrap_or(NonZeroU64::MIN)
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        let inner = self.lock();
        inner.seats.len() - inner.free.len()
    }

    /// A place in the pool; it is given back when the member is dropped.
    pub fn join(&self, class: TrafficClass, weight: NonZeroU32) -> PoolMember {
        let seat = Seat {
            class,
            weight,
            want: 0,
            heard: None,
            share: 0,
            previous_share: 0,
        };
        let mut inner = self.lock();
        let index = match inner.free.pop() {
            Some(index) => {
                inner.seats[index] = Some(seat);
                index
            }
            None => {
                inner.seats.push(Some(seat));
                inner.seats.len() - 1
            }
        };
        drop(inner);
        PoolMember {
            pool: self.clone(),
            index,
            asked: None,
            fraction: 0,
            total: 0,
            sent: 0,
            held: false,
            used: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Numbers only: whoever panicked left nothing half done that matters.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place in a [`Pool`].
#[derive(Debug)]
pub struct PoolMember {
    pool: Pool,
    index: usize,
    asked: Option<Time>,
    /// Its share in parts of the total, and the total, when it last asked.
    fraction: u64,
    total: u64,
    /// Bytes sent since.
    sent: u64,
    /// Whether its share held it back since.
    held: bool,
    /// Bytes per second it used of late.
    used: u64,
}

impl PoolMember {
    /// Puts it into another class from the next sum on.
    pub fn set_class(&self, class: TrafficClass) {
        self.with_seat(|seat| seat.class = class);
    }

    /// Its class.
    pub fn class(&self) -> TrafficClass {
        self.with_seat(|seat| seat.class).unwrap_or_default()
    }

    /// Gives it another weight from the next sum on.
    pub fn set_weight(&self, weight: NonZeroU32) {
        self.with_seat(|seat| seat.weight = weight);
    }

    /// Its weight within its class.
    pub fn weight(&self) -> NonZeroU32 {
        self.with_seat(|seat| seat.weight)
            .unwrap_or(NonZeroU32::MIN)
    }

    fn with_seat<T>(&self, act: impl FnOnce(&mut Seat) -> T) -> Option<T> {
        let mut inner = self.pool.lock();
        inner.seats.get_mut(self.index)?.as_mut().map(act)
    }

    /// Bytes per second it may send now. `limit` is the most it could use for reasons of its own.
    pub(crate) fn rate(&mut self, now: Time, limit: u64) -> NonZeroU64 {
        if self.next_question().is_none_or(|at| now >= at) {
            self.ask(now, limit);
        }
        let rate = parts_of(self.total, self.fraction);
        NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN)
    }

    /// When its rate may change next; `None` if it never asked.
    pub(crate) fn next_question(&self) -> Option<Time> {
        self.asked.map(|asked| asked + INTERVAL)
    }

    /// It sent a packet.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// It would have sent more but for its share.
    pub(crate) fn on_held(&mut self) {
        self.held = true;
    }

    fn ask(&mut self, now: Time, limit: u64) {
        let elapsed = self
            .asked
            .map(|asked| nanos(now.saturating_duration_since(asked)));
        let want = match elapsed {
            // Nothing is known of a newcomer.
            None => u64::MAX,
            Some(elapsed) => {
                let rate = u128::from(self.sent) * 1_000_000_000 / u128::from(elapsed.max(1));
                let rate = u64::try_from(rate).unwrap_or(u64::MAX);
                // Falls by a quarter per question, so that the pauses of a bursty sender do not
                // count; rises at once.
                self.used = rate.max(self.used / 4 * 3);
                match self.held {
                    true => u64::MAX,
                    false => self.used.saturating_add(self.used / 16),
                }
            }
        };
        let mut inner = self.pool.lock();
        self.fraction = inner.answer(self.index, now, want.min(limit));
        self.total = inner.total;
        drop(inner);
        self.asked = Some(now);
        self.sent = 0;
        self.held = false;
    }
}

impl Drop for PoolMember {
    fn drop(&mut self) {
        let mut inner = self.pool.lock();
        inner.seats[self.index] = None;
        inner.free.push(self.index);
    }
}

impl Inner {
    /// The fraction of the total that a seat wanting `want` bytes per second may use.
    fn answer(&mut self, index: usize, now: Time, want: u64) -> u64 {
        let want = u128::from(want) * u128::from(WHOLE) / u128::from(self.total);
        let want = u64::try_from(want).unwrap_or(u64::MAX).min(WHOLE + 1);
        let Some(seat) = self.seats.get_mut(index).and_then(Option::as_mut) else {
            return 0;
        };
        let newcomer = seat.heard.is_none();
        seat.want = want;
        seat.heard = Some(now);
        match self.solved {
            None => {
                // The first sum of all: nobody holds an older share.
                self.solve(now);
                for seat in self.seats.iter_mut().flatten() {
                    seat.previous_share = seat.share;
                }
            }
            Some(solved) if now >= solved + INTERVAL => self.solve(now),
            Some(_) if newcomer => self.admit(index),
            Some(_) => {}
        }
        let members = (self.seats.len() - self.free.len()) as u64;
        match &self.seats[index] {
            Some(seat) => seat
                .share
                .min(seat.previous_share)
                .max(KEPT / members.max(1)),
            None => 0,
        }
    }

    /// A newcomer between two sums starts on what nobody wanted at the last: others may be using
    /// a little of it, for one interval.
    fn admit(&mut self, index: usize) {
        let weights = self.seats.iter().flatten();
        let weights: u64 = weights.map(|seat| u64::from(seat.weight.get())).sum();
        let spare = self.spare;
        if let Some(seat) = &mut self.seats[index] {
            seat.share = part(spare, u64::from(seat.weight.get()), weights);
            seat.previous_share = seat.share;
        }
    }

    fn solve(&mut self, now: Time) {
        self.solved = Some(now);
        let mut claims = core::mem::take(&mut self.claims);
        claims.iter_mut().for_each(Vec::clear);
        let mut wanted = [0u64; CLASSES];
        let mut all_weights = 0u64;
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let Some(seat) = seat else { continue };
            seat.previous_share = seat.share;
            let gone = seat
                .heard
                .is_none_or(|heard| now.saturating_duration_since(heard) > IDLE_AFTER);
            let claim = Claim {
                seat: index,
                weight: u64::from(seat.weight.get()),
                want: if gone { 0 } else { seat.want },
            };
            wanted[seat.class as usize] += claim.want.min(WHOLE);
            all_weights += claim.weight;
            claims[seat.class as usize].push(claim);
        }
        let (budgets, spare) = budgets(wanted);
        self.spare = spare;
        for (class, budget) in claims.iter_mut().zip(budgets) {
            share_out(class, budget, |claim, share| {
                if let Some(seat) = &mut self.seats[claim.seat] {
                    seat.share = share + part(spare, claim.weight, all_weights);
                }
            });
        }
        self.claims = claims;
    }
}

/// Weighted max-min: whoever wants least per weight gets it, the others share the rest by weight.
/// Finds the border by halves instead of sorting, in time linear in the claims.
fn share_out(claims: &mut [Claim], budget: u64, mut give: impl FnMut(&Claim, u64)) {
    let mut left = budget;
    let mut weights: u64 = claims.iter().map(|claim| claim.weight).sum();
    // Below `from` all get what they want, from `to` on none does.
    let (mut from, mut to) = (0, claims.len());
    while from < to {
        let open = &mut claims[from..to];
        let middle = open.len() / 2;
        let (below, pivot, _) = open.select_nth_unstable_by(middle, |a, b| {
            let per_weight = |x: &Claim, y: &Claim| u128::from(x.want) * u128::from(y.weight);
            (per_weight(a, b), a.seat).cmp(&(per_weight(b, a), b.seat))
        });
        let mut wanted = u128::from(pivot.want);
        let mut weighed = pivot.weight;
        for claim in &*below {
            wanted += u128::from(claim.want);
            weighed += claim.weight;
        }
        // What the pivot and all above it get if those below it get what they want.
        let rest = (u128::from(left) + u128::from(pivot.want)).checked_sub(wanted);
        let others = u128::from(weights - weighed + pivot.weight);
        let fits = rest
            .is_some_and(|rest| u128::from(pivot.want) * others <= rest * u128::from(pivot.weight));
        if fits {
            for claim in claims[from..=from + middle].iter() {
                give(claim, claim.want);
            }
            left -= u64::try_from(wanted).unwrap_or(left);
            weights -= weighed;
            from += middle + 1;
        } else {
            to = from + middle;
        }
    }
    for claim in &claims[to..] {
        let share = part(left, claim.weight, weights);
        left -= share;
        weights -= claim.weight;
        give(claim, share);
    }
}

/// What each class gets of what it wants, and what is left.
fn budgets(wanted: [u64; CLASSES]) -> ([u64; CLASSES], u64) {
    let mut left = WHOLE - KEPT;
    let mut budgets = wanted.map(|wanted| wanted.min(GUARANTEED));
    left -= budgets.iter().sum::<u64>();
    for (budget, wanted) in budgets.iter_mut().zip(wanted) {
        let more = (wanted - *budget).min(left);
        *budget += more;
        left -= more;
    }
    (budgets, left)
}

/// `whole * weight / weights`, rounded down.
fn part(whole: u64, weight: u64, weights: u64) -> u64 {
    let part = u128::from(whole) * u128::from(weight) / u128::from(weights.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// So many parts of `total`.
fn parts_of(total: u64, parts: u64) -> u64 {
    part(total, parts, WHOLE)
}

#[cfg(test)]
mod tests;
