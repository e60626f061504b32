//! Services by name over one connection: a protocol between a connection and its handles.
//!
//! The first bytes of a stream say which service it is for, a length and a name. The protocol reads
//! these and nothing more, and leaves the stream to whoever serves the name. A datagram begins with the
//! number of its service. HTTP/3 and WebTransport sessions have this shape.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use towline::engine::{Event, ReadError};
use towline::handles::{Protocol, Turn};
use towline::io::Change;
use towline::{Connection, ConnectionError, Direction, RecvStream, SendStream, StreamId, Time};

/// Streams whose name may be missing at a time; a further one is refused.
const MAX_NAMELESS: usize = 100;
/// How long a name may take.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);
/// Code of a refused stream: nobody serves the name.
pub const NO_SERVICE: u64 = 1;
/// Code of a refused stream: the name took too long, or too many are missing.
pub const NO_NAME: u64 = 2;

/// The protocol's name in ALPN.
pub const ALPN: &str = "services/1";

/// Streams that wait for whoever serves a name, each with the code of a peer that wants no answer any
/// more, and who waits for them.
type Waiting = (VecDeque<(StreamId, Option<u64>)>, Option<Waker>);

/// The protocol's part in one connection.
pub struct Services {
    /// What is served here; a datagram names a service by its place in this list.
    names: Vec<String>,
    waiting: Vec<Waiting>,
    /// Streams whose name has not arrived, and how much of it has.
    nameless: HashMap<StreamId, (Time, Vec<u8>)>,
    /// Datagrams that came for each service.
    pub datagrams: Vec<u64>,
    end: Option<ConnectionError>,
}

impl Services {
    pub fn new(names: &[&str]) -> Self {
        Self {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            waiting: names.iter().map(|_| Default::default()).collect(),
            nameless: HashMap::new(),
            datagrams: vec![0; names.len()],
            end: None,
        }
    }

    fn refuse(turn: &mut Turn<'_>, id: StreamId, code: u64) {
        turn.connection.stop(id, code);
        turn.connection.reset(id, code);
    }

    /// Reads what has arrived of a stream's name.
    fn read_name(&mut self, turn: &mut Turn<'_>, id: StreamId) {
        let Some((_, head)) = self.nameless.get_mut(&id) else {
            return;
        };
        loop {
            let wanted = head.first().map_or(1, |len| 1 + usize::from(*len));
            if head.len() == wanted && wanted > 1 {
                break;
            }
            match turn.connection.read(id, wanted - head.len()) {
                Ok(Some(bytes)) => head.extend_from_slice(&bytes),
                Err(ReadError::Blocked) => return,
                Ok(None) | Err(_) => {
                    self.nameless.remove(&id);
                    return Self::refuse(turn, id, NO_NAME);
                }
            }
        }
        let (_, head) = self.nameless.remove(&id).unwrap_or_default();
        let name = &head[1..];
        match self.names.iter().position(|own| own.as_bytes() == name) {
            Some(service) => {
                let (streams, waker) = &mut self.waiting[service];
                streams.push_back((id, None));
                turn.wake.extend(waker.take());
            }
            None => Self::refuse(turn, id, NO_SERVICE),
        }
    }
}

impl Protocol for Services {
    fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) -> Option<Event> {
        match event {
            Event::Opened(Direction::Bidirectional) => {
                while let Some(id) = turn.connection.accept(Direction::Bidirectional) {
                    if self.nameless.len() >= MAX_NAMELESS {
                        Self::refuse(turn, id, NO_NAME);
                        continue;
                    }
                    self.nameless
                        .insert(id, (turn.now + NAME_TIMEOUT, Vec::new()));
                    self.read_name(turn, id);
                }
                None
            }
            Event::Readable(id) if self.nameless.contains_key(&id) => {
                self.read_name(turn, id);
                None
            }
            Event::Stopped { id, error_code } => {
                let waiting = self.waiting.iter_mut().flat_map(|(streams, _)| streams);
                for (_, stopped) in waiting.filter(|(waiting, _)| *waiting == id) {
                    *stopped = Some(error_code);
                }
                // One that has a handle learns of it from there.
                Some(event)
            }
            Event::DatagramReceived => {
                while let Some(datagram) = turn.connection.recv_datagram() {
                    let service = datagram.first().map_or(usize::MAX, |n| usize::from(*n));
                    if let Some(count) = self.datagrams.get_mut(service) {
                        *count += 1;
                    }
                }
                None
            }
            other => Some(other),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.nameless.values().map(|(until, _)| *until).min()
    }

    fn on_timeout(&mut self, turn: &mut Turn<'_>) {
        let late = |(id, (until, _)): (&StreamId, &(Time, _))| (*until <= turn.now).then_some(*id);
        let mut late: Vec<_> = self.nameless.iter().filter_map(late).collect();
        late.sort_unstable();
        for id in late {
            self.nameless.remove(&id);
            Self::refuse(turn, id, NO_NAME);
        }
    }

    fn on_end(&mut self, error: &ConnectionError, wake: &mut Vec<Waker>) {
        self.end = Some(error.clone());
        for (_, waker) in &mut self.waiting {
            wake.extend(waker.take());
        }
    }
}

/// The next stream for the service with this place in the list; one task for each service.
pub async fn accept(
    connection: &Connection,
    service: usize,
) -> Result<(SendStream, RecvStream), ConnectionError> {
    let next = poll_fn(|cx| {
        let next = connection.with_protocol(|own: &mut Services, turn| {
            let (streams, waker) = &mut own.waiting[service];
            let next = match (streams.pop_front(), &own.end) {
                (Some(next), _) => {
                    if let Some(turn) = turn {
                        turn.expect_handle(next.0);
                    }
                    Poll::Ready(Ok(next))
                }
                (None, Some(end)) => Poll::Ready(Err(end.clone())),
                (None, None) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
            (next, Change::None)
        });
        next.expect("connections of this protocol have it")
    });
    let (id, stopped) = next.await?;
    let send = connection.adopt_send(id, stopped);
    Ok((send, connection.adopt_recv(id)))
}

/// Opens a stream to a service of the other end.
pub async fn open(
    connection: &Connection,
    name: &str,
) -> Result<(SendStream, RecvStream), Box<dyn std::error::Error + Send + Sync>> {
    let (mut send, recv) = connection.open_bi().await?;
    let len = u8::try_from(name.len())?;
    send.write_all(&[len]).await?;
    send.write_all(name.as_bytes()).await?;
    Ok((send, recv))
}
