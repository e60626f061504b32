//! What holds a connection below what its path would carry: its own limit, its share of the host's
//! pool and a fixed rate.
//!
//! `Recovery` asks it before window and pacer let a packet go and tells it of every packet sent.
//! The lowest of the rates goes through one strict bucket; without any there is none.

use core::num::NonZeroU64;

use towline_wire::Time;

use crate::pool::PoolMember;
use crate::rate_limit::RateLimit;

/// The limits of one connection.
#[derive(Debug)]
pub(crate) struct Throttle {
    limit: Option<NonZeroU64>,
    pool: Option<Box<PoolMember>>,
    bucket: Option<Box<RateLimit>>,
    /// It was the pool that refused the latest permit.
    pool_refused: bool,
}

impl Throttle {
    pub(crate) fn new(limit: Option<NonZeroU64>) -> Self {
        Self {
            limit,
            pool: None,
            bucket: None,
            pool_refused: false,
        }
    }

    pub(crate) fn set_limit(&mut self, limit: Option<NonZeroU64>) {
        self.limit = limit;
    }

    pub(crate) fn limit(&self) -> Option<NonZeroU64> {
        self.limit
    }

    pub(crate) fn set_pool(&mut self, member: Option<PoolMember>) {
        self.pool = member.map(Box::new);
    }

    pub(crate) fn pool(&self) -> Option<&PoolMember> {
        self.pool.as_deref()
    }

    /// Bytes that may leave now in packets that need a permit, or the time to ask again.
    /// `strict_rate` is the controller's.
    pub(crate) fn permit(
        &mut self,
        now: Time,
        datagram: u64,
        strict_rate: Option<NonZeroU64>,
    ) -> Result<u64, Time> {
        // Most connections have no limit, and are asked about it for every train.
        if strict_rate.is_none() && self.is_absent() {
            return Ok(u64::MAX);
        }
        self.pool_refused = false;
        let Some((bucket, by_pool)) = self.bucket_at(now, datagram, strict_rate) else {
            return Ok(u64::MAX);
        };
        bucket.permit(now, datagram).map_err(|at| {
            self.pool_refused = by_pool;
            self.ask_again(now, at)
        })
    }

    fn is_absent(&self) -> bool {
        self.limit.is_none() && self.pool.is_none() && self.bucket.is_none()
    }

    /// The bucket with the rate that is in force now, and whether that is the pool's.
    fn bucket_at(
        &mut self,
        now: Time,
        datagram: u64,
        strict_rate: Option<NonZeroU64>,
    ) -> Option<(&mut RateLimit, bool)> {
        let own = self.limit.into_iter().chain(strict_rate).min();
        let most = own.map_or(u64::MAX, NonZeroU64::get);
        let share = self.pool.as_mut().map(|member| member.rate(now, most));
        let Some(rate) = own.into_iter().chain(share).min() else {
            self.bucket = None;
            return None;
        };
        let bucket = self
            .bucket
            .get_or_insert_with(|| Box::new(RateLimit::new(now, rate)));
        bucket.set_rate(now, rate, datagram);
        Some((bucket, share == Some(rate)))
    }

    /// Of a wait until `at`: the share may have grown before.
    fn ask_again(&self, now: Time, at: Time) -> Time {
        let question = self.pool.as_ref().and_then(|member| member.next_question());
        let question = question.filter(|question| *question > now);
        question.map_or(at, |question| question.min(at))
    }

    /// There was something to send when a permit was refused.
    pub(crate) fn on_held_back(&mut self) {
        if let Some(member) = self.pool.as_mut().filter(|_| self.pool_refused) {
            member.on_held();
        }
    }

    /// A permit it gave was refused by the pacer or by whose turn it is.
    pub(crate) fn on_held_elsewhere(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.keep_waiting();
        }
    }

    /// Before which time not even a packet that needs no permit may leave.
    /// While the window is full this is all that is asked, so it follows changes of the rate too.
    pub(crate) fn exempt(
        &mut self,
        now: Time,
        size: u64,
        datagram: u64,
        strict_rate: Option<NonZeroU64>,
    ) -> Option<Time> {
        self.bucket.as_ref()?;
        let (bucket, _) = self.bucket_at(now, datagram, strict_rate)?;
        let at = bucket.exempt(now, size, datagram)?;
        Some(self.ask_again(now, at))
    }

    /// Charges a packet of any kind.
    pub(crate) fn on_sent(&mut self, now: Time, size: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.on_sent(now, size);
        }
        if let Some(member) = &mut self.pool {
            member.on_sent(size);
        }
    }

    /// Bytes per second that go through now, if limited.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.bucket.as_ref().map(|bucket| bucket.rate().get())
    }
}
