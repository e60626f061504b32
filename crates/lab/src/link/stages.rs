//! What each stage of a batch costs, from the text of its deltas at one end to that at the other.

use std::sync::Arc;
use std::time::Duration;

use towline_link::codec::{Decoder, Encoder, Record};
use towline_quic::{ConnectionHandle, DatagramMeta, Event};
use towline_wire::Time;

use crate::host::Host;

/// The stages, in order: the text is read, the batch coded, the packet built and sealed, opened and taken
/// apart, the batch decoded, its text written.
pub const STAGES: [&str; 6] = ["parse", "encode", "seal", "open", "decode", "write"];
/// From one batch to the next, on the connections' clocks.
const INTERVAL: Duration = Duration::from_millis(20);
/// Batches that are on their way when one is coded.
const ON_THE_WAY: u64 = 3;
/// Batches that are not measured.
const WARM_UP: usize = 200;

/// What was measured: for each stage, and for a batch as a whole, what each batch took, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// As [`STAGES`].
    pub each: [Vec<Duration>; STAGES.len()],
    /// All of them.
    pub whole: Vec<Duration>,
}

impl Stages {
    fn new(rounds: usize) -> Self {
        // Written to now, so that what grows later is nothing of ours.
        let empty = || vec![Duration::MAX; rounds];
        Self {
            each: std::array::from_fn(|_| empty()),
            whole: empty(),
        }
    }
}

/// Two endpoints with a connection between them.
pub(super) struct Pair<'a> {
    pub(super) hosts: &'a mut [Host],
    pub(super) handles: [ConnectionHandle; 2],
    pub(super) now: Time,
}

impl Pair<'_> {
    /// Carries what `from` has to send to the other; the length of it.
    fn carry(&mut self, from: usize, mut between: impl FnMut()) -> bool {
        let now = self.now;
        let remote = self.hosts[from].address;
        let mut has_sent = false;
        loop {
            let host = &mut self.hosts[from];
            let Some(sent) = host.endpoint.poll_transmit(now, &mut host.train) else {
                return has_sent;
            };
            has_sent = true;
            let mut bytes = host.train.filled()[..sent.len].to_vec();
            let meta = DatagramMeta {
                remote,
                local_ip: None,
                ecn: None,
                stride: sent.segment_size,
            };
            between();
            self.hosts[1 - from]
                .endpoint
                .handle_datagrams(now, meta, &mut bytes);
        }
    }

    /// The datagram that came, or why there will be none.
    fn received(&mut self, at: usize) -> Result<Option<Vec<u8>>, String> {
        while let Some((_, event)) = self.hosts[at].endpoint.poll_event() {
            if let Event::Closed(why) = event {
                return Err(why.to_string());
            }
        }
        let connection = self.hosts[at].endpoint.connection_mut(self.handles[at]);
        let message = connection.and_then(towline_quic::Connection::recv_datagram);
        Ok(message.map(|message| message.to_vec()))
    }

    /// Lets time pass, with all that is due.
    fn pass(&mut self) -> Result<(), String> {
        self.now += INTERVAL;
        for at in 0..2 {
            self.hosts[at].endpoint.handle_timeout(self.now);
        }
        while self.carry(1, || {}) || self.carry(0, || {}) {}
        for at in 0..2 {
            while self.received(at)?.is_some() {}
        }
        Ok(())
    }
}

/// Sends `rounds` batches of the texts, which come again and again, one after the other. `clock` is how long it has
/// been since some moment.
pub(super) fn run(
    mut pair: Pair<'_>,
    texts: &[String],
    batch: usize,
    rounds: usize,
    clock: impl Fn() -> Duration,
    mut progress: impl FnMut(usize),
) -> Result<Stages, String> {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let mut stages = Stages::new(rounds);
    let mut chunks = texts.chunks_exact(batch).cycle();
    let said = |error: &dyn std::fmt::Display| error.to_string();
    for round in 0..WARM_UP + rounds {
        let Some(texts) = chunks.next() else {
            return Err(format!("there are less than {batch} deltas"));
        };
        let mut marks = [clock(); STAGES.len() + 1];
        let records = texts.iter().map(|text| Record::parse(text.as_bytes()));
        let records = records.collect::<Result<Arc<[Record]>, _>>();
        let records = records.map_err(|error| said(&error))?;
        marks[1] = clock();
        let mut message = Vec::new();
        let number = encoder.push(records).map_err(|error| said(&error))?;
        encoder.encode(number, &mut message);
        marks[2] = clock();
        let connection = pair.hosts[0].endpoint.connection_mut(pair.handles[0]);
        let fits = connection.as_ref().and_then(|it| it.max_datagram_len());
        let coded = if fits.is_some_and(|most| message.len() <= most) {
            if let Some(connection) = connection {
                connection
                    .send_datagram(message.into())
                    .map_err(|error| said(&error))?;
            }
            let mut sealed = Duration::ZERO;
            pair.carry(0, || sealed = clock());
            let coded = pair.received(1)?;
            marks[3] = sealed;
            coded.ok_or("a datagram did not arrive")?
        } else {
            // One of the first, which goes on a stream of its own.
            marks[3] = clock();
            message
        };
        marks[4] = clock();
        let decoded = decoder.decode(&coded).map_err(|error| said(&error))?;
        marks[5] = clock();
        let written: usize = decoded
            .records
            .iter()
            .map(|record| record.to_json().len())
            .sum();
        marks[6] = clock();
        if written == 0 {
            return Err("a batch came back empty".to_owned());
        }
        if let Some(round) = round.checked_sub(WARM_UP) {
            for (stage, pair) in stages.each.iter_mut().zip(marks.windows(2)) {
                stage[round] = pair[1].saturating_sub(pair[0]);
            }
            stages.whole[round] = marks[6].saturating_sub(marks[0]);
            progress(round + 1);
        }
        encoder.on_decoded(0..(number + 1).saturating_sub(ON_THE_WAY));
        pair.pass()?;
    }
    for stage in stages.each.iter_mut().chain([&mut stages.whole]) {
        stage.sort_unstable();
    }
    Ok(stages)
}
