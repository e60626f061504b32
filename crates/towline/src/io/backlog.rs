//! What piled up in the socket while nobody drove the shard: a stopped process, a runtime that was
//! busy with something else, a machine asleep.
//!
//! Deadlines that passed meanwhile say nothing until what came in time has been read, and the
//! round trips of what waited here are not the path's. The shard asks when each train came, reads
//! one at a time until one is young, and runs no timer before. Never more than what a socket's
//! buffer holds, so that a flood cannot hold the timers back.

use std::time::Duration;

use towline_wire::Time;

/// An absence or a wait longer than this is none of the usual delays between a wake and a turn.
const LATE: Duration = Duration::from_millis(10);

/// What a datagram in a socket's buffer counts beside its bytes; less than what the system counts.
const DATAGRAM_OVERHEAD: usize = 256;

#[derive(Debug)]
pub(super) struct Backlog {
    /// The end of the last turn: nothing that is read now came before.
    since: Time,
    /// Bytes that the socket's buffer may still hold of it.
    left: usize,
}

impl Backlog {
    /// What may wait at `now` behind a turn that ended at `since`, in a buffer of so many bytes.
    pub(super) fn after(since: Time, now: Time, buffer: usize) -> Option<Self> {
        let away = now.saturating_duration_since(since);
        // The system counts more than the bytes, and has as much again for that.
        let left = buffer.saturating_mul(2);
        (away >= LATE).then_some(Self { since, left })
    }

    /// A train was read at `now` that lay in the socket for `waited`, if the system knows. Returns
    /// when it came, and whether older ones may follow.
    pub(super) fn on_read(
        &mut self,
        now: Time,
        waited: Option<Duration>,
        bytes: usize,
        datagrams: usize,
    ) -> (Time, bool) {
        let count = bytes.saturating_add(datagrams.saturating_mul(DATAGRAM_OVERHEAD));
        self.left = self.left.saturating_sub(count);
        let Some(waited) = waited else {
            return (now, self.left > 0);
        };
        if waited < LATE {
            return (now, false);
        }
        let came = now - waited;
        // Trains come in the order they are read, whatever happens to the system's clock.
        self.since = self.since.max(came).min(now);
        (self.since, self.left > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    const fn ms(n: u64) -> Option<Duration> {
        Some(Duration::from_millis(n))
    }

    #[test]
    fn a_short_pause_is_no_absence() {
        assert!(Backlog::after(at(100), at(109), 1000).is_none());
        assert!(Backlog::after(at(100), at(110), 1000).is_some());
        assert!(Backlog::after(at(100), at(50), 1000).is_none());
    }

    #[test]
    fn trains_come_in_order_and_not_before_the_absence() {
        let mut backlog = Backlog::after(at(1000), at(2000), 1 << 20).unwrap();
        let mut read = |waited| backlog.on_read(at(2000), waited, 1200, 1);
        assert_eq!(read(ms(5000)), (at(1000), true));
        assert_eq!(read(ms(700)), (at(1300), true));
        assert_eq!(read(ms(900)), (at(1300), true), "the clock was set back");
        assert_eq!(read(ms(10)), (at(1990), true));
        assert_eq!(read(ms(9)), (at(2000), false));
    }

    #[test]
    fn it_ends_with_the_buffer_where_the_system_does_not_say_when() {
        let mut backlog = Backlog::after(at(0), at(99), 1200).unwrap();
        assert_eq!(backlog.on_read(at(99), None, 1200, 1), (at(99), true));
        assert_eq!(backlog.on_read(at(99), None, 1200, 1), (at(99), false));
        let mut tiny = Backlog::after(at(0), at(99), 1 << 20).unwrap();
        let reads = (0..).take_while(|_| tiny.on_read(at(99), None, 1, 1).1);
        assert!(reads.count() < 2 * (1 << 20) / DATAGRAM_OVERHEAD);
    }
}
