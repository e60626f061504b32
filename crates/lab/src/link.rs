//! How many bytes a delta takes: batches of JSON objects over sealed datagrams and a lossy link.
//!
//! Two endpoints with a connection between them, on virtual time. The client codes batch after batch; one
//! that fits no datagram takes a stream. The server decodes what arrives and tells the client so, over a link
//! that loses as much. Counted is the UDP payload that the client sends: packets, with what QUIC puts into
//! them, and everything that is sent again.

mod networks;
mod source;
mod stages;
mod voyage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towline_link::codec::{DecodeError, Decoder, Encoder, PushError, Record};
use towline_quic::{
    ClientConfig, Connection, ConnectionHandle, DatagramFate, DatagramOptions, Direction, Endpoint,
    EndpointConfig, Event, NoCids, ServerConfig, ShardedCid, StreamId, TransportConfig,
};
use towline_sim::{LinkConfig, LossModel, Network, Train, Watch, World};
use towline_testkit::{SERVER_NAME, TlsOptions, tls_pair};
use towline_wire::Time;

use crate::host::Host;

pub use networks::{NETWORKS, NamedNetwork, six_networks};
pub use source::Source;
pub use stages::{STAGES, Stages};
pub use voyage::{Outcome as VoyageOutcome, Plan as VoyagePlan, Voyage};

/// Deltas at the beginning that count as cold.
pub const COLD: usize = 1_000;
/// From one batch to the next.
const INTERVAL: Duration = Duration::from_millis(20);
/// One way. An acknowledgement is back after three batches at the least.
const DELAY: Duration = Duration::from_millis(35);
/// Batches that the server tells of at once, and how long it waits for them.
const TOLD_AT_ONCE: u64 = 4;
const TOLD_AFTER: Duration = Duration::from_millis(100);
/// The client sends a batch again of which it has heard nothing for so long.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// A measurement that has not come to its end so long after the last batch never will.
const PATIENCE: Duration = Duration::from_secs(60);

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Deltas in a batch.
    pub batch: usize,
    /// The chance of a datagram, either way, to get lost.
    pub loss: f64,
    /// What chance there is comes from here.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes a delta until [`COLD`] of them were sent, training included.
    pub cold: f64,
    /// Bytes a delta after that; `None` where there were none.
    pub warm: Option<f64>,
    /// Datagrams that the client sent.
    pub datagrams: u64,
    /// Batches that took a stream.
    pub streams: u64,
    /// Batches sent again.
    pub again: u64,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A batch is too large.
    #[error(transparent)]
    Push(#[from] PushError),
    /// No deltas, or batches of none.
    #[error("there is nothing to measure: it takes deltas, and at least one in a batch")]
    Nothing,
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Ended(String),
    /// What was decoded is not what was sent.
    #[error(
        "batch {0} came back otherwise than it was sent: a fault in the codec, please report it"
    )]
    Wrong(u64),
    /// A batch of ours was refused.
    #[error("a batch was refused, a fault in the codec, please report it: {0}")]
    Refused(DecodeError),
    /// Batches did not arrive.
    #[error("{0} batches did not arrive: a fault in the codec, please report it")]
    Missing(usize),
}

/// Sends `records` in batches as `plan` says, and before them those of `training` in batches of 20; `progress`
/// hears how many deltas were sent.
///
/// # Errors
/// When they don't arrive as they are, or the plan is impossible.
pub fn measure(
    training: &[Record],
    records: &[Record],
    plan: Plan,
    mut progress: impl FnMut(usize),
) -> Result<Outcome, Failure> {
    if plan.batch == 0 || records.is_empty() {
        return Err(Failure::Nothing);
    }
    let mut line = Line::default();
    let mut world = world(plan, &mut line);
    world.run_for(Duration::from_secs(2), &mut line);
    line.bytes = 0;
    line.datagrams = 0;
    for chunk in training.chunks(20) {
        line.push(&mut world, chunk)?;
    }
    let mut sent = 0;
    let mut cold = None;
    for chunk in records.chunks(plan.batch) {
        if sent >= COLD && cold.is_none() {
            cold = Some((sent, line.bytes));
        }
        line.push(&mut world, chunk)?;
        sent += chunk.len();
        progress(sent);
    }
    let end = world.now + PATIENCE;
    while line.encoder.in_flight() > 0 && world.now < end {
        line.turn(&mut world)?;
    }
    match line.encoder.in_flight() {
        0 => {}
        missing => return Err(Failure::Missing(missing)),
    }
    let (cold_deltas, cold_bytes) = cold.unwrap_or((sent, line.bytes));
    let per = |bytes: u64, deltas: usize| bytes as f64 / deltas as f64;
    let warm = sent - cold_deltas;
    Ok(Outcome {
        cold: per(cold_bytes, cold_deltas),
        warm: (warm > 0).then(|| per(line.bytes - cold_bytes, warm)),
        datagrams: line.datagrams,
        streams: line.streams,
        again: line.again,
    })
}

/// Measures what each stage of `rounds` batches costs. `texts` are deltas, which come again and again; `clock` is how
/// long it has been since some moment; `progress` hears of each batch.
///
/// # Errors
/// When there are too few deltas, or a batch does not arrive.
pub fn stages(
    texts: &[String],
    batch: usize,
    rounds: usize,
    clock: impl Fn() -> Duration,
    progress: impl FnMut(usize),
) -> Result<Stages, Failure> {
    if batch == 0 || texts.len() < batch {
        return Err(Failure::Nothing);
    }
    let mut line = Line::default();
    let plan = Plan {
        batch,
        loss: 0.0,
        seed: 1,
    };
    let mut world = world(plan, &mut line);
    world.run_for(Duration::from_secs(2), &mut line);
    let [Some(client), Some(server)] = line.handles else {
        return Err(Failure::Ended("there is no connection".to_owned()));
    };
    let pair = stages::Pair {
        now: world.now,
        hosts: &mut world.hosts,
        handles: [client, server],
    };
    stages::run(pair, texts, batch, rounds, clock, progress).map_err(Failure::Ended)
}

/// Two endpoints, one of them on its way to the other, as the link sets them up: short connection IDs, few
/// acknowledgements, no search for large packets that nothing fills.
fn world(plan: Plan, line: &mut Line) -> World<Host, Network> {
    let tls = tls_pair(plan.seed, &TlsOptions::default());
    let transport = TransportConfig::default()
        .mtu_search(false)
        .packets_per_ack(10)
        .max_ack_delay(Duration::from_millis(100));
    let secrets = |side: u8| {
        let mut bytes = [side; 32];
        bytes[..8].copy_from_slice(&plan.seed.to_le_bytes());
        EndpointConfig::from_seed(bytes)
    };
    let server = ServerConfig::new(Arc::clone(&tls.server)).transport(transport.clone());
    let short = ShardedCid::with_len(0, ShardedCid::MIN_LEN);
    let short = secrets(2).cid_generator(Box::new(short.unwrap_or(ShardedCid::new(0))));
    let client = ClientConfig::new(Arc::clone(&tls.client)).transport(transport);
    let addresses = ["10.0.0.1:4460", "10.0.0.2:4460"].map(|address| address.parse().ok());
    let [Some(here), Some(there)] = addresses else {
        unreachable!("both are addresses");
    };
    let hosts = vec![
        Host::new(
            Endpoint::new(secrets(1).cid_generator(Box::new(NoCids)), None),
            here,
        ),
        Host::new(Endpoint::new(short, Some(Arc::new(server))), there),
    ];
    let mut world = World::new(hosts, Network::new(plan.seed));
    let link = LinkConfig {
        delay: DELAY,
        loss: LossModel::Bernoulli(plan.loss),
        ..LinkConfig::default()
    };
    let joined = world.net.join(here, there, link.clone(), link);
    debug_assert!(joined.is_ok(), "the caller checked the loss");
    let endpoint = &mut world.hosts[CLIENT].endpoint;
    match endpoint.connect(world.now, &client, there, SERVER_NAME) {
        Ok(handle) => line.handles[CLIENT] = Some(handle),
        Err(error) => line.ended = Some(error.to_string()),
    }
    world
}

/// Both ends of the link, and what was counted.
#[derive(Default)]
struct Line {
    encoder: Encoder,
    decoder: Decoder,
    handles: [Option<ConnectionHandle>; 2],
    batches: Vec<Arc<[Record]>>,
    /// When each batch that is not known to have arrived was sent last.
    waiting: BTreeMap<u64, Time>,
    lost: BTreeSet<u64>,
    writing: BTreeMap<StreamId, Bytes>,
    reading: BTreeMap<StreamId, Vec<u8>>,
    untold: u64,
    told: Time,
    wrong: Option<u64>,
    refused: Option<DecodeError>,
    ended: Option<String>,
    bytes: u64,
    datagrams: u64,
    streams: u64,
    again: u64,
}

impl Line {
    /// Sends a batch, and lets time pass until the next.
    fn push(&mut self, world: &mut World<Host, Network>, batch: &[Record]) -> Result<(), Failure> {
        let batch: Arc<[Record]> = batch.into();
        let number = self.encoder.push(Arc::clone(&batch))?;
        self.batches.push(batch);
        self.send(world.now, &mut world.hosts, number);
        self.turn(world)
    }

    fn turn(&mut self, world: &mut World<Host, Network>) -> Result<(), Failure> {
        world.run_for(INTERVAL, self);
        let silent = self
            .waiting
            .iter()
            .filter(|(_, sent)| **sent + AGAIN_AFTER <= world.now);
        let silent: Vec<u64> = silent.map(|(number, _)| *number).collect();
        self.lost.extend(silent);
        for number in std::mem::take(&mut self.lost) {
            self.again += u64::from(self.send(world.now, &mut world.hosts, number));
        }
        if self.untold > 0 && self.told + TOLD_AFTER <= world.now {
            self.tell(world.now, &mut world.hosts);
        }
        world.flush(self);
        match (self.wrong, self.refused, &self.ended) {
            (Some(number), ..) => Err(Failure::Wrong(number)),
            (_, Some(error), _) => Err(Failure::Refused(error)),
            (_, _, Some(error)) => Err(Failure::Ended(error.clone())),
            _ => Ok(()),
        }
    }

    fn connection<'a>(&self, hosts: &'a mut [Host], at: usize) -> Option<&'a mut Connection> {
        hosts[at].endpoint.connection_mut(self.handles[at]?)
    }

    /// Codes a batch and sends it; false if it is known to have arrived.
    fn send(&mut self, now: Time, hosts: &mut [Host], number: u64) -> bool {
        let mut message = Vec::new();
        if !self.encoder.encode(number, &mut message) {
            self.waiting.remove(&number);
            return false;
        }
        self.waiting.insert(number, now);
        let Some(connection) = self.connection(hosts, CLIENT) else {
            return false;
        };
        let mut message = Bytes::from(message);
        if connection
            .max_datagram_len()
            .is_some_and(|most| message.len() <= most)
        {
            let options = DatagramOptions::default().id(number);
            let sent = connection.send_datagram_with(now, b"", &mut message, &options);
            debug_assert!(sent.is_ok(), "it fits, and the queue is never full");
        } else if let Some(id) = connection.open(Direction::Unidirectional) {
            self.streams += 1;
            write(connection, id, &mut message);
            if !message.is_empty() {
                self.writing.insert(id, message);
            }
        }
        true
    }

    /// Tells the client what has been decoded.
    fn tell(&mut self, now: Time, hosts: &mut [Host]) {
        let mut message = Vec::new();
        for range in self.decoder.decoded().take(16) {
            message.extend_from_slice(&range.start.to_be_bytes());
            message.extend_from_slice(&range.end.to_be_bytes());
        }
        if let Some(connection) = self.connection(hosts, SERVER) {
            // One that is refused or lost makes way for the next.
            let _ = connection.send_datagram(message.into());
        }
        self.untold = 0;
        self.told = now;
    }

    fn on_message(&mut self, message: &[u8]) {
        match self.decoder.decode(message) {
            Ok(decoded) => {
                let sent = &self.batches[decoded.number as usize];
                if decoded.records != *sent {
                    self.wrong = Some(decoded.number);
                }
                self.untold += 1;
            }
            // What the client was told got lost.
            Err(DecodeError::Duplicate(_)) => self.untold += 1,
            // It comes again, in the light of what is known by then.
            Err(DecodeError::TooLate | DecodeError::Full) => {}
            Err(error) => self.refused = Some(error),
        }
    }

    fn on_told(&mut self, message: &[u8]) {
        let numbers: Vec<u64> = message
            .as_chunks()
            .0
            .iter()
            .map(|number| u64::from_be_bytes(*number))
            .collect();
        for range in numbers.as_chunks().0 {
            let [start, end] = *range;
            self.encoder.on_decoded(start..end);
            for number in start..end {
                self.waiting.remove(&number);
                self.lost.remove(&number);
            }
        }
    }

    fn read(&mut self, hosts: &mut [Host], id: StreamId) {
        let Some(connection) = self.connection(hosts, SERVER) else {
            return;
        };
        let mut message = self.reading.remove(&id).unwrap_or_default();
        loop {
            match connection.read(id, usize::MAX) {
                Ok(Some(bytes)) => message.extend_from_slice(&bytes),
                Ok(None) => return self.on_message(&message),
                Err(_) => break,
            }
        }
        self.reading.insert(id, message);
    }
}

fn write(connection: &mut Connection, id: StreamId, message: &mut Bytes) {
    // A stream that the connection's end took away is no more written to.
    if connection.write(id, message).is_ok() && message.is_empty() {
        let _ = connection.finish(id);
    }
}

impl Watch<Host, Network> for Line {
    fn send(&mut self, _: Time, _: &mut [Host], at: usize, train: &mut Train) -> bool {
        if at == CLIENT {
            let len = train.datagram.payload.len();
            self.bytes += len as u64;
            self.datagrams += len.div_ceil(train.stride.max(1)) as u64;
        }
        true
    }

    fn on_event(
        &mut self,
        now: Time,
        hosts: &mut [Host],
        at: usize,
        event: (ConnectionHandle, Event),
    ) {
        let (handle, event) = event;
        match (at, event) {
            (SERVER, Event::Accepted) => self.handles[SERVER] = Some(handle),
            (_, Event::DatagramReceived) => {
                while let Some(message) = self
                    .connection(hosts, at)
                    .and_then(Connection::recv_datagram)
                {
                    match at {
                        SERVER => self.on_message(&message),
                        _ => self.on_told(&message),
                    }
                }
                if self.untold >= TOLD_AT_ONCE {
                    self.tell(now, hosts);
                }
            }
            (
                CLIENT,
                Event::DatagramFate {
                    id,
                    fate: DatagramFate::Lost | DatagramFate::Expired,
                },
            ) if self.waiting.contains_key(&id) => {
                self.lost.insert(id);
            }
            (CLIENT, Event::Writable(id)) => {
                if let Some(mut message) = self.writing.remove(&id)
                    && let Some(connection) = self.connection(hosts, CLIENT)
                {
                    write(connection, id, &mut message);
                    if !message.is_empty() {
                        self.writing.insert(id, message);
                    }
                }
            }
            (SERVER, Event::Opened(direction)) => {
                while let Some(id) = self
                    .connection(hosts, SERVER)
                    .and_then(|c| c.accept(direction))
                {
                    self.read(hosts, id);
                }
            }
            (SERVER, Event::Readable(id)) => self.read(hosts, id),
            (_, Event::Closed(error)) => self.ended = Some(error.to_string()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
