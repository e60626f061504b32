//! [`Uplink`]: the end that sends.
//!
//! A task owns the [`Sender`], a thread the [`Store`], and a [`Channel`] the connection while there is one. A
//! record goes to the thread, comes back durable, and then to the sender; what is on a connection can be lost
//! at any time, and the next connection begins with what is durable at the other end.

use std::ops::Range;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use towline_link::PathPatterns;
use towline_link::carriage::{LOOK_AGAIN, MAX_RETRY, RESTORED, RETRY, WORKED};
use towline_link::codec::Record;
use towline_link::sender::{Class, Sender, SenderError};
use towline_wire::Time;

use super::carrier::{Channel, Input};
use super::crash::crash_point;
use super::dial::Dialer;
use super::status::{PushError, State, Status, UplinkConfig};
use super::store::{Answer, Ask, Keeper, Kept, Store, StoreError, Stored};
use super::via::Via;

/// Records that are on their way to the store at once, and bytes of them; one more record may come on top.
const MAX_STORING: usize = 1_024;
const MAX_STORING_BYTES: usize = 16 << 20;
/// After a failed read of the store nothing is read for so long.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How often the status is told.
const STATUS_EVERY: Duration = Duration::from_millis(250);

/// What a push is answered with.
type Done = oneshot::Sender<Result<u64, PushError>>;

struct Push {
    record: Record,
    class: Class,
    done: Done,
}

/// A record on its way to the store.
struct Storing {
    record: Record,
    class: Class,
    done: Done,
    /// Bytes that are stored.
    len: usize,
    /// When it came: its deadline counts from then on, whatever the store takes.
    since: Time,
}

/// The end of a link that sends.
#[derive(Debug)]
pub struct Uplink {
    pushes: mpsc::Sender<Push>,
    status: watch::Receiver<Status>,
    budget: watch::Sender<Option<u64>>,
    close: Option<oneshot::Sender<Duration>>,
    task: JoinHandle<()>,
}

impl Uplink {
    /// Begins to send what `store` holds and what is pushed. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When there is no thread for the store.
    pub fn start(
        config: UplinkConfig,
        dialer: Dialer,
        mut store: impl Store,
    ) -> std::io::Result<Self> {
        let (pushes, pushed) = mpsc::channel(MAX_STORING);
        let (close, closed) = oneshot::channel();
        let held = store.held();
        let stored = store.bytes();
        let mut sender = Sender::new(config.sender.clone(), &held);
        restore(&mut sender, &mut store, &config.alarms);
        let first = Status {
            state: State::Connecting,
            sender: sender.stats(),
            connection: None,
            bytes_sent: 0,
            bytes_received: 0,
            durable: held.seqs.start,
            next: held.seqs.end,
            backlog: sender.backlog(),
            in_flight: 0,
            stored,
            oldest_unsent: None,
            overdue: None,
            is_on_hold: false,
            store: None,
            refused: 0,
            connections: 0,
        };
        let (budget, spendable) = watch::channel(config.budget);
        let (tell, status) = watch::channel(first.clone());
        let driver = Driver {
            config,
            dialer,
            sender,
            keeper: Keeper::start(store)?,
            storing: 0,
            storing_bytes: 0,
            trimmed: held.seqs.start,
            origin: Instant::now(),
            channel: None,
            via: Via::Udp,
            is_answered: false,
            attempts: JoinSet::new(),
            retry: RETRY,
            next_attempt: None,
            heard: (0, Instant::now()),
            status: first,
            tell,
            before: (0, 0),
            spendable,
            connected: Instant::now(),
            read_again: Instant::now(),
        };
        let task = tokio::spawn(driver.run(pushed, closed));
        Ok(Self {
            pushes,
            status,
            budget,
            close: Some(close),
            task,
        })
    }

    /// Takes a record; its number, once the store has made it durable. From then on it is not lost.
    ///
    /// Cancel safe: a dropped call may have pushed the record, or not.
    ///
    /// # Errors
    /// When the store refuses it, or the uplink is closed. The record was not accepted.
    pub async fn push(&self, record: Record, class: Class) -> Result<u64, PushError> {
        let (done, answer) = oneshot::channel();
        let push = Push {
            record,
            class,
            done,
        };
        self.pushes
            .send(push)
            .await
            .map_err(|_| PushError::Closed)?;
        answer.await.map_err(|_| PushError::Closed)?
    }

    /// Takes a record and does not wait for it to be durable: `false` if the uplink is closed. What becomes of it
    /// is told by the [status](Self::status).
    pub async fn send(&self, record: Record, class: Class) -> bool {
        let (done, _) = oneshot::channel();
        let push = Push {
            record,
            class,
            done,
        };
        self.pushes.send(push).await.is_ok()
    }

    /// How it is doing, told a few times a second.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Bytes that may be sent and received since the start; beyond these, alarms alone go.
    pub fn set_budget(&self, budget: Option<u64>) {
        self.budget.send_replace(budget);
    }

    /// Sends what it has, for `patience` at most, and ends. The rest stays in the store.
    pub async fn close(mut self, patience: Duration) {
        if let Some(close) = self.close.take() {
            let _ = close.send(patience);
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        // The task notices that nobody can push or close any more.
        self.close.take();
    }
}

struct Driver {
    config: UplinkConfig,
    dialer: Dialer,
    sender: Sender,
    keeper: Keeper<Storing>,
    storing: usize,
    storing_bytes: usize,
    trimmed: u64,
    origin: Instant,
    channel: Option<Channel>,
    /// What the channel is.
    via: Via,
    /// The other end has said something on it.
    is_answered: bool,
    attempts: JoinSet<(Via, Result<Channel, String>)>,
    retry: Duration,
    next_attempt: Option<(Instant, Via)>,
    /// Packets that had come from the peer, and when the last of them was noticed.
    heard: (u64, Instant),
    status: Status,
    tell: watch::Sender<Status>,
    /// Bytes of the connections before this one.
    before: (u64, u64),
    spendable: watch::Receiver<Option<u64>>,
    /// When the channel began.
    connected: Instant,
    /// When the store may be read.
    read_again: Instant,
}

impl Driver {
    async fn run(
        mut self,
        mut pushes: mpsc::Receiver<Push>,
        mut closed: oneshot::Receiver<Duration>,
    ) {
        self.attempt(Via::Udp);
        let mut ticks = tokio::time::interval(STATUS_EVERY);
        let mut end: Option<Instant> = None;
        let mut is_open = true;
        loop {
            self.pump();
            let is_done = self.sender.backlog() == 0 && self.sender.in_flight() == 0;
            let is_told = self.sender.durable() == self.status.next;
            if let Some(end) = end
                && (end <= Instant::now() || !is_open && self.storing == 0 && is_done && is_told)
            {
                break;
            }
            let wake = end.map_or(self.wake(), |end| end.min(self.wake()));
            tokio::select! {
                push = pushes.recv(), if is_open && self.can_store() => match push {
                    Some(push) => self.on_push(push),
                    None => is_open = false,
                },
                answer = self.keeper.answer() => match answer {
                    Some(answer) => self.on_answer(answer),
                    None => break,
                },
                input = next_input(&mut self.channel) => self.on_input(input),
                Some(attempt) = self.attempts.join_next() => {
                    if let Ok((via, result)) = attempt {
                        self.on_attempt(via, result);
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
                _ = ticks.tick() => self.on_tick(),
                patience = &mut closed, if end.is_none() => {
                    pushes.close();
                    end = Some(Instant::now() + patience.unwrap_or_default());
                }
            }
        }
        if let Some(channel) = self.channel.take() {
            channel.close("");
            if let Some(connection) = channel.quic() {
                // The notice leaves.
                let _ = tokio::time::timeout(Duration::from_secs(1), connection.closed()).await;
            }
            self.count(&channel);
        }
        self.tell_status();
        self.keeper.end().await;
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    fn wake(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3_600);
        let is_stuck = self.channel.as_ref().is_some_and(|it| !it.takes_control());
        let timer = (!is_stuck).then(|| self.sender.poll_timeout()).flatten();
        let timer = timer.map(|due| self.origin + due.saturating_duration_since(Time::ZERO));
        let look_again = (self.channel.is_some() && (is_stuck || self.sender.backlog() > 0))
            .then(|| Instant::now() + LOOK_AGAIN);
        let attempt = self.next_attempt.map(|(at, _)| at);
        let wakes = [timer, look_again, attempt].into_iter().flatten();
        wakes.min().unwrap_or(far)
    }

    /// Does what can be done now.
    fn pump(&mut self) {
        if let Some((at, via)) = self.next_attempt
            && at <= Instant::now()
        {
            self.next_attempt = None;
            self.attempt(via);
        }
        while self.read_again <= Instant::now()
            && let Some(seqs) = self.sender.poll_read()
        {
            self.keeper.ask(Ask::Read(seqs));
        }
        let now = self.now();
        if let Some(channel) = &self.channel {
            loop {
                if !channel.takes_control() {
                    break;
                }
                let mut room = channel.room();
                let spent = self.status.bytes_sent + self.status.bytes_received;
                let spendable = *self.spendable.borrow();
                room.alarms_only |= spendable.is_some_and(|most| spent >= most);
                let Some(message) = self.sender.poll_message(now, &room) else {
                    break;
                };
                let sent = channel.send(message);
                crash_point("uplink.sent");
                if let Err(transmission) = sent {
                    // It goes when one before has gone, which is told.
                    self.sender.on_refused(transmission);
                    break;
                }
            }
        }
        let durable = self.sender.durable();
        if durable > self.trimmed {
            self.trimmed = durable;
            crash_point("uplink.durable");
            self.keeper.ask(Ask::Trim(durable));
        }
    }

    fn can_store(&self) -> bool {
        self.storing < MAX_STORING && self.storing_bytes < MAX_STORING_BYTES
    }

    fn on_push(&mut self, push: Push) {
        self.storing += 1;
        let Push {
            record,
            class,
            done,
        } = push;
        let bytes = record.to_json().into_bytes();
        let len = bytes.len();
        self.storing_bytes += len;
        let storing = Storing {
            record,
            class,
            done,
            len,
            since: self.now(),
        };
        self.keeper.ask(Ask::Append(bytes, storing));
    }

    fn on_answer(&mut self, answer: Answer<Storing>) {
        match answer {
            Answer::Kept(kept, stored) => {
                if self.status.store.take().is_some() {
                    tracing::info!("the spool takes records again");
                }
                self.status.stored = stored;
                for (Kept { seq, dropped }, storing) in kept {
                    self.storing -= 1;
                    self.storing_bytes -= storing.len;
                    if let Some(dropped) = dropped {
                        tracing::warn!(
                            "the spool is full: records {} to {} are lost to make room; give it more with [spool] max",
                            dropped.start,
                            dropped.end - 1
                        );
                        self.sender.on_dropped(dropped);
                    }
                    self.sender
                        .push(storing.since, seq, storing.record, storing.class);
                    self.status.next = seq + 1;
                    let _ = storing.done.send(Ok(seq));
                }
            }
            Answer::Refused(storing, error) => {
                self.storing -= 1;
                self.storing_bytes -= storing.len;
                self.status.refused += 1;
                let _ = storing.done.send(Err(error.clone().into()));
                self.on_trouble(error);
            }
            Answer::Trouble(error) => self.on_trouble(error),
            Answer::Read(seqs, Ok(Stored { records, next })) => self.on_read(&seqs, next, &records),
            Answer::Read(seqs, Err(error)) => {
                // Nothing of it was read, and it is asked for again.
                self.sender.on_read(&seqs, seqs.start, Vec::new());
                self.read_again = Instant::now() + READ_AGAIN;
                self.on_trouble(error);
            }
            Answer::Stream(Ok(stream)) => {
                tracing::warn!(
                    "all that the spool holds is sent as a new stream; what the other end had of it is there twice"
                );
                self.disconnect("another stream begins");
                self.sender.begin_stream(self.now(), stream);
            }
            Answer::Stream(Err(error)) => self.on_trouble(error),
        }
    }

    fn on_trouble(&mut self, error: StoreError) {
        if self.status.store.as_ref() != Some(&error) {
            tracing::error!("{error}");
        }
        self.status.store = Some(error);
    }

    fn on_read(&mut self, seqs: &Range<u64>, next: u64, records: &[(u64, Vec<u8>)]) {
        // What is no record was not written by us, and counts as lost.
        let parsed = records.iter().filter_map(|(seq, bytes)| {
            let record = Record::parse_stored(bytes);
            record.ok().map(|record| (*seq, record))
        });
        self.sender.on_read(seqs, next, parsed.collect());
    }

    fn on_input(&mut self, input: Input) {
        match input {
            Input::Message(bytes) => {
                self.on_answered();
                if let Err(error) = self.sender.handle_message(&bytes) {
                    self.disconnect(&error.to_string());
                    if matches!(error, SenderError::Older { .. }) {
                        self.keeper.ask(Ask::BeginStream);
                    }
                }
            }
            Input::Acked(number) => self.sender.on_acked(self.now(), number),
            Input::Lost(number) => self.sender.on_lost(number),
            Input::Ended(why) => self.disconnect(&why),
        }
    }

    /// The other end takes us: a client is connected before the server has judged its key.
    fn on_answered(&mut self) {
        if self.is_answered {
            return;
        }
        self.is_answered = true;
        match self.via {
            Via::Udp => tracing::info!("the link is up"),
            Via::Tls => tracing::warn!(
                "the link is up over TLS and TCP: UDP does not get through, which makes it slower and larger; it goes back by itself"
            ),
        }
        self.status.state = State::Live(self.via);
        self.status.connections += 1;
        self.tell_status();
    }

    /// Gives the connection up, and tries to get another.
    fn disconnect(&mut self, why: &str) {
        let Some(channel) = self.channel.take() else {
            return;
        };
        self.count(&channel);
        channel.close(why);
        self.before = (self.status.bytes_sent, self.status.bytes_received);
        self.on_down(why);
        self.status.connection = None;
        self.sender.on_disconnected(self.now());
        self.attempts.abort_all();
        self.attempts.detach_all();
        self.next_attempt = None;
        if self.is_answered && self.connected.elapsed() >= WORKED {
            self.retry = RETRY;
            self.attempt(Via::Udp);
        } else {
            // Nor would it take us at once.
            self.attempt_later();
        }
        self.tell_status();
    }

    fn on_down(&mut self, why: &str) {
        let down = State::Down(why.to_owned());
        if self.status.state != down {
            tracing::warn!("the link is down: {why}");
            self.status.state = down;
        }
    }

    fn attempt_later(&mut self) {
        self.next_attempt = Some((Instant::now() + self.retry, Via::Udp));
        self.retry = (self.retry * 2).min(MAX_RETRY);
    }

    fn attempt(&mut self, via: Via) {
        let dialer = self.dialer.clone();
        self.attempts
            .spawn(async move { (via, dialer.dial(via).await) });
        if via == Via::Udp && self.channel.is_none() && self.dialer.has_fallback() {
            let dialer = self.dialer.clone();
            let silence = self.config.silence;
            // UDP goes first.
            self.attempts.spawn(async move {
                tokio::time::sleep(silence).await;
                (Via::Tls, dialer.dial(Via::Tls).await)
            });
        }
    }

    fn on_attempt(&mut self, via: Via, result: Result<Channel, String>) {
        match result {
            // UDP answers again, or did not when TLS was asked for.
            Ok(channel) if self.channel.is_none() || via != self.via => self.connect(via, channel),
            Ok(channel) => channel.close(""),
            Err(why) if self.channel.is_none() => {
                self.on_down(&why);
                if self.attempts.is_empty() {
                    self.attempt_later();
                }
                self.tell_status();
            }
            Err(_) if self.via == Via::Tls => {
                self.next_attempt = Some((Instant::now() + self.config.back_to_udp, Via::Udp));
            }
            Err(_) => {}
        }
    }

    fn connect(&mut self, via: Via, channel: Channel) {
        if let Some(before) = self.channel.take() {
            self.count(&before);
            before.close("");
            self.before = (self.status.bytes_sent, self.status.bytes_received);
        }
        self.attempts.abort_all();
        self.attempts.detach_all();
        self.next_attempt =
            (via == Via::Tls).then(|| (Instant::now() + self.config.back_to_udp, Via::Udp));
        self.via = via;
        self.is_answered = false;
        self.heard = (0, Instant::now());
        self.connected = Instant::now();
        self.channel = Some(channel);
        self.sender.on_connected(self.now());
        self.tell_status();
    }

    /// Adds up what the connection carried.
    fn count(&mut self, channel: &Channel) {
        let (sent, received) = channel.carried();
        self.status.bytes_sent = self.before.0 + sent;
        self.status.bytes_received = self.before.1 + received;
    }

    fn on_tick(&mut self) {
        if let Some(channel) = self.channel.take() {
            self.count(&channel);
            self.look_for_silence(&channel);
            self.channel = Some(channel);
        }
        self.tell_status();
    }

    /// UDP that was blocked in mid-stream is noticed by what is not acknowledged.
    fn look_for_silence(&mut self, channel: &Channel) {
        let Some(connection) = channel.quic() else {
            return;
        };
        let stats = connection.stats();
        if stats.packets_received != self.heard.0 || stats.bytes_in_flight == 0 {
            self.heard = (stats.packets_received, Instant::now());
        }
        if self.dialer.has_fallback()
            && self.heard.1.elapsed() >= self.config.silence
            && self.attempts.is_empty()
        {
            self.heard.1 = Instant::now();
            let dialer = self.dialer.clone();
            self.attempts
                .spawn(async move { (Via::Tls, dialer.dial(Via::Tls).await) });
        }
    }

    fn tell_status(&mut self) {
        let now = self.now();
        let status = &mut self.status;
        status.sender = self.sender.stats();
        status.connection = self
            .channel
            .as_ref()
            .and_then(Channel::quic)
            .map(|connection| connection.stats());
        status.durable = self.sender.durable();
        status.backlog = self.sender.backlog();
        status.in_flight = self.sender.in_flight();
        status.oldest_unsent = self.sender.oldest_unsent(now);
        status.overdue = self.sender.overdue(now);
        status.is_on_hold = self.sender.is_on_hold();
        self.tell.send_replace(status.clone());
    }
}

/// Lets the sender begin with the last records of the store.
fn restore(sender: &mut Sender, store: &mut impl Store, alarms: &PathPatterns) {
    // What cannot be read now is asked for later, as all the others are.
    if last_records(store, |seq, record| sender.recall(seq, &record)).is_none() {
        return;
    }
    last_records(store, |seq, record| {
        let class = match alarms.fit(&record) {
            true => Class::Alarm,
            false => Class::Telemetry,
        };
        sender.restore(Time::ZERO, seq, record, class);
    });
}

/// Gives the last records of the store, oldest first; `None` if not all could be read.
fn last_records(store: &mut impl Store, mut take: impl FnMut(u64, Record)) -> Option<()> {
    let held = store.held().seqs;
    let mut next = held.end.saturating_sub(RESTORED).max(held.start);
    while next < held.end {
        let stored = store.read(next..held.end).ok()?;
        for (seq, bytes) in stored.records {
            if let Ok(record) = Record::parse_stored(&bytes) {
                take(seq, record);
            }
        }
        if stored.next <= next {
            return None;
        }
        next = stored.next;
    }
    Some(())
}

async fn next_input(channel: &mut Option<Channel>) -> Input {
    match channel {
        Some(channel) => channel.input().await,
        None => std::future::pending().await,
    }
}
