//! One end's application: it opens, writes, reads, resets, stops and closes as planned.
//!
//! It acts on engine events and on its own clock, never by polling, so that a wake-up the engine
//! owes and does not give ends as a stall. Called by `conversation`.

use std::collections::{BTreeSet, VecDeque};

use towline_quic::{
    Algorithm, Connection, DatagramFate, DatagramOptions, Event, ReadError, ResetAtError,
    SendDatagramError, WriteError,
};
use towline_wire::{Direction, Side, StreamId, Time};

use super::ledger::{Ledger, Outcome, reset_code, stop_code};
use super::plan::{EndPlan, StreamPlan};

/// The application of one end.
#[derive(Debug)]
pub struct App {
    side: Side,
    chunk: usize,
    /// Streams to be opened, with their times.
    to_open: VecDeque<(Time, StreamPlan)>,
    /// `open` said no; `StreamsAvailable` is owed.
    refused: [bool; 2],
    writable: BTreeSet<StreamId>,
    readable: BTreeSet<StreamId>,
    accepted: BTreeSet<StreamId>,
    key_updates: VecDeque<Time>,
    switches: VecDeque<(Time, Algorithm)>,
    datagrams: Option<Datagrams>,
    /// Streams stand in groups and orders, and datagrams are told apart.
    flows: bool,
    /// What became of the datagrams sent, where it is asked.
    fates: Vec<Option<DatagramFate>>,
    pace: Option<Pace>,
}

#[derive(Debug)]
struct Datagrams {
    left: u32,
    size: usize,
    interval: std::time::Duration,
    next: Time,
    /// The queue was full; `DatagramSendable` is owed.
    refused: bool,
}

/// How much a slow reader may still read in this interval.
#[derive(Debug)]
struct Pace {
    amount: u64,
    interval: std::time::Duration,
    left: u64,
    next: Time,
}

type Judged<T = ()> = Result<T, String>;

impl App {
    /// The application of `side`, whose handshake ended at `now`.
    pub fn new(side: Side, plan: &EndPlan, now: Time) -> Self {
        Self {
            side,
            chunk: plan.chunk.max(1),
            to_open: plan.streams.iter().map(|s| (now + s.start, *s)).collect(),
            refused: [false; 2],
            writable: BTreeSet::new(),
            readable: BTreeSet::new(),
            accepted: BTreeSet::new(),
            key_updates: plan.key_updates.iter().map(|after| now + *after).collect(),
            switches: plan.switches.iter().map(|(t, a)| (now + *t, *a)).collect(),
            datagrams: plan.datagrams.map(|d| Datagrams {
                left: d.count,
                size: d.size,
                interval: d.interval,
                next: now,
                refused: false,
            }),
            flows: plan.flows,
            fates: Vec::new(),
            pace: plan.pace.map(|(amount, interval)| Pace {
                amount,
                interval,
                left: amount,
                next: now + interval,
            }),
        }
    }

    /// Everything planned was begun.
    pub fn has_begun_everything(&self) -> bool {
        self.to_open.is_empty() && self.datagrams.as_ref().is_none_or(|d| d.left == 0)
    }

    /// When it next acts by itself.
    pub fn next_timeout(&self) -> Option<Time> {
        let open = self
            .to_open
            .front()
            .filter(|(_, s)| !self.refused[s.direction.index()])
            .map(|(at, _)| *at);
        let datagrams = self.datagrams.as_ref().filter(|d| d.left > 0 && !d.refused);
        let pace = self.pace.as_ref().filter(|p| p.left == 0);
        [
            open,
            self.key_updates.front().copied(),
            self.switches.front().map(|(at, _)| *at),
            datagrams.map(|d| d.next),
            pace.map(|p| p.next),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Reacts to an event.
    pub(super) fn on_event(
        &mut self,
        event: &Event,
        connection: &mut Connection,
        ledger: &mut Ledger,
    ) -> Judged {
        let peer = self.side.peer();
        match event {
            Event::Readable(id) => {
                ledger.half(*id, peer)?;
                // A stream not yet accepted is read when it is.
                if self.accepted.contains(id) || id.initiator() == self.side {
                    self.readable.insert(*id);
                }
            }
            Event::Writable(id) => {
                ledger.half(*id, self.side)?;
                self.writable.insert(*id);
            }
            Event::Opened(direction) => self.accept(*direction, connection, ledger)?,
            Event::StreamsAvailable(direction) => self.refused[direction.index()] = false,
            Event::Finished(id) => ledger.half(*id, self.side)?.on_acknowledged()?,
            Event::Stopped { id, error_code } => {
                let half = ledger.half(*id, self.side)?;
                half.on_stopped(*error_code)?;
                self.writable.remove(id);
            }
            Event::DatagramReceived => {
                while let Some(data) = connection.recv_datagram() {
                    ledger.on_datagram(peer, &data)?;
                }
            }
            Event::DatagramFate { id, fate } => self.on_fate(*id, *fate)?,
            Event::DatagramSendable => {
                if let Some(d) = &mut self.datagrams {
                    d.refused = false;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Judges what became of a datagram: each has one fate, or was late and not lost.
    fn on_fate(&mut self, id: u64, fate: DatagramFate) -> Judged {
        let known = usize::try_from(id).ok().and_then(|i| self.fates.get_mut(i));
        let Some(known) = known else {
            return Err(format!(
                "{fate:?} is the fate of a datagram never sent: {id}"
            ));
        };
        match (known.replace(fate), fate) {
            (None, _) | (Some(DatagramFate::Lost), DatagramFate::Acked) => Ok(()),
            (before, _) => Err(format!("datagram {id} is {fate:?} after {before:?}")),
        }
    }

    fn accept(
        &mut self,
        direction: Direction,
        connection: &mut Connection,
        ledger: &mut Ledger,
    ) -> Judged {
        while let Some(id) = connection.accept(direction) {
            if id.initiator() == self.side || id.direction() != direction {
                return Err(format!("accepted {id:?} as {direction:?}"));
            }
            ledger.half(id, self.side.peer())?;
            if !self.accepted.insert(id) {
                return Err(format!("accepted {id:?} twice"));
            }
            self.readable.insert(id);
            if direction == Direction::Bidirectional {
                self.writable.insert(id);
            }
        }
        Ok(())
    }

    /// Does what can be done now. Returns whether the engine was called.
    pub(super) fn run(
        &mut self,
        now: Time,
        connection: &mut Connection,
        ledger: &mut Ledger,
    ) -> Judged {
        while self.key_updates.front().is_some_and(|at| *at <= now) {
            self.key_updates.pop_front();
            connection.initiate_key_update();
        }
        while let Some((at, algorithm)) = self.switches.front().copied()
            && at <= now
        {
            self.switches.pop_front();
            connection.set_congestion(now, algorithm);
        }
        self.open(now, connection, ledger)?;
        self.send_datagrams(now, connection, ledger)?;
        while let Some(id) = self.writable.pop_first() {
            self.write(id, connection, ledger)?;
        }
        if let Some(pace) = &mut self.pace
            && pace.next <= now
        {
            pace.left = pace.amount;
            pace.next = now + pace.interval;
        }
        while self.may_read()
            && let Some(id) = self.readable.pop_first()
        {
            self.read(id, connection, ledger)?;
        }
        Ok(())
    }

    /// Whether `run` has something to do at `now`.
    pub(super) fn is_due(&self, now: Time) -> bool {
        !self.writable.is_empty()
            || (self.may_read() && !self.readable.is_empty())
            || self.next_timeout().is_some_and(|at| at <= now)
    }

    fn may_read(&self) -> bool {
        self.pace.as_ref().is_none_or(|p| p.left > 0)
    }

    fn open(&mut self, now: Time, connection: &mut Connection, ledger: &mut Ledger) -> Judged {
        while let Some((at, plan)) = self.to_open.front().copied() {
            if at > now || self.refused[plan.direction.index()] {
                break;
            }
            let Some(id) = connection.open(plan.direction) else {
                self.refused[plan.direction.index()] = true;
                break;
            };
            self.to_open.pop_front();
            ledger.on_opened(id, &plan)?;
            if self.flows {
                let n = id.index();
                let placed = connection.set_priority(id, (n % 5) as i64 - 2);
                let placed = placed.and(connection.set_send_group(id, (n % 7 / 2) as u32));
                placed.map_err(|e| format!("a place for {id:?}: {e}"))?;
            }
            self.writable.insert(id);
            if plan.direction == Direction::Bidirectional {
                // Nothing to read yet; this tells the engine that we wait.
                self.readable.insert(id);
            }
        }
        Ok(())
    }

    fn send_datagrams(
        &mut self,
        now: Time,
        connection: &mut Connection,
        ledger: &mut Ledger,
    ) -> Judged {
        let Some(d) = &mut self.datagrams else {
            return Ok(());
        };
        while d.left > 0 && d.next <= now && !d.refused {
            let Some(most) = connection.max_datagram_len() else {
                d.left = 0;
                break;
            };
            let mut data = ledger.next_datagram(self.side, d.size.min(most));
            let len = data.len();
            let mut options = DatagramOptions::default();
            if self.flows {
                let n = self.fates.len() as u64;
                options.id = Some(n);
                options.sender = (n % 3) as u32;
                options.send_order = (n % 2) as i64;
                let age = d.interval * 4 + std::time::Duration::from_millis(5);
                options.max_age = n.is_multiple_of(4).then_some(age);
            }
            match connection.send_datagram_with(now, b"", &mut data, &options) {
                Ok(()) => {
                    self.fates.push(None);
                    ledger.on_datagram_sent(self.side, len);
                    d.left -= 1;
                    d.next += d.interval;
                }
                Err(SendDatagramError::Full) => d.refused = true,
                // Fewer bytes fit than a datagram's number takes.
                Err(SendDatagramError::TooLarge { max }) if len > max && max == most => d.left = 0,
                Err(e) => return Err(format!("a datagram of {len} bytes was refused: {e}")),
            }
        }
        Ok(())
    }

    fn write(&mut self, id: StreamId, connection: &mut Connection, ledger: &mut Ledger) -> Judged {
        let half = ledger.half(id, self.side)?;
        if half.finished || half.reset.is_some() || half.stop_heard {
            return Ok(());
        }
        loop {
            let mut data = half.next_bytes(self.chunk);
            if data.is_empty() {
                break;
            }
            let offered = data.len();
            match connection.write(id, &mut data) {
                Ok(n) if n + data.len() == offered && n > 0 => half.written += n as u64,
                Ok(n) => return Err(format!("write took {n} of {offered} bytes")),
                Err(WriteError::Blocked) => return Ok(()),
                Err(WriteError::Stopped(code)) => return half.on_stopped(code),
                Err(e) => return Err(format!("write on {id:?}: {e}; {half:?}")),
            }
        }
        let whole = half.written == half.plan.size;
        if whole {
            match connection.finish(id) {
                Ok(()) => half.finished = true,
                Err(WriteError::Stopped(code)) => return half.on_stopped(code),
                Err(e) => return Err(format!("finish of {id:?}: {e}; {half:?}")),
            }
        }
        if half.plan.reset_at.is_some() {
            let code = reset_code(id);
            half.reset = Some(code);
            // On every other stream half of what was written arrives all the same.
            half.reliable = half.written / 2 * (id.index() % 2);
            match connection.reset_at(id, code, half.reliable) {
                // Delivered and acknowledged before.
                Ok(()) | Err(ResetAtError::ClosedStream) => {}
                Err(e) => return Err(format!("reset of {id:?}: {e}; {half:?}")),
            }
        }
        Ok(())
    }

    fn read(&mut self, id: StreamId, connection: &mut Connection, ledger: &mut Ledger) -> Judged {
        let half = ledger.half(id, self.side.peer())?;
        if half.outcome.is_some() {
            return Ok(());
        }
        loop {
            let mut most = self.chunk;
            if let Some(stop_at) = half.plan.stop_at {
                let left = stop_at.saturating_sub(half.read);
                if left == 0 {
                    half.stop = Some(stop_code(id));
                    half.outcome = Some(Outcome::Stopped);
                    connection.stop(id, stop_code(id));
                    return Ok(());
                }
                most = most.min(usize::try_from(left).unwrap_or(usize::MAX));
            }
            if let Some(pace) = &self.pace {
                if pace.left == 0 {
                    self.readable.insert(id);
                    return Ok(());
                }
                most = most.min(usize::try_from(pace.left).unwrap_or(usize::MAX));
            }
            let data = match connection.read(id, most) {
                Ok(Some(data)) => data,
                Ok(None) => return half.on_end(),
                Err(ReadError::Blocked) => return Ok(()),
                Err(ReadError::Reset(code)) => return half.on_reset(code),
                Err(e) => return Err(format!("read on {id:?}: {e}; {half:?}")),
            };
            if data.is_empty() || data.len() > most {
                return Err(format!("read of at most {most} gave {} bytes", data.len()));
            }
            half.on_read(&data)?;
            if let Some(pace) = &mut self.pace {
                pace.left -= data.len() as u64;
            }
        }
    }
}
