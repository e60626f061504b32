//! Whole connections on a pair of transports: two of ours, or one of ours and a peer of bare bytes.

mod messages;
mod peer;
mod rules;
mod sessions;

use std::collections::VecDeque;

use bytes::Bytes;
use http::request::Parts as RequestHead;
use http::response::Parts as ResponseHead;
use http::{Method, Request, Response};
use towline_wire::StreamId;

use crate::pair::{End, Limits, Notice, pair};
use crate::transport::Transport;
use crate::{BodyError, Config, Connection, Event, SendError};

/// A connection on its end of the pair, with the events it told.
struct Host {
    end: End,
    connection: Connection,
    events: VecDeque<Event>,
}

impl Host {
    fn new(end: End, config: Config) -> Self {
        let mut host = Self {
            connection: Connection::new(end.side(), config),
            end,
            events: VecDeque::new(),
        };
        host.connection.on_established(&mut host.end);
        host
    }

    /// Handles what the transport told; whether there was anything.
    fn turn(&mut self) -> bool {
        let (end, connection) = (&mut self.end, &mut self.connection);
        let again = connection.again();
        connection.resume(end);
        let mut told = false;
        while let Some(notice) = end.poll_notice() {
            told = true;
            match notice {
                Notice::Opened(direction) => connection.on_opened(end, direction),
                Notice::Readable(id) => connection.on_readable(end, id),
                Notice::Writable(id) => connection.on_writable(end, id),
                Notice::Stopped(id, code) => connection.on_stopped(end, id, code),
                Notice::Available(_) => connection.on_streams_available(end),
                Notice::Datagrams => while connection.on_datagrams(end) {},
                Notice::Closed(_) => {}
            }
        }
        while let Some(event) = self.connection.poll_event() {
            self.events.push_back(event);
        }
        told || again
    }

    fn next(&mut self) -> Event {
        self.events.pop_front().expect("an event")
    }

    /// The next event that is not the peer's settings.
    fn next_of_stream(&mut self) -> Event {
        match self.next() {
            Event::Settings(_) => self.next(),
            event => event,
        }
    }

    fn request(&mut self, head: &RequestHead, end: bool) -> Result<StreamId, SendError> {
        self.connection.request(&mut self.end, head, None, end)
    }

    fn respond(&mut self, id: StreamId, status: u16, end: bool) {
        let head = response(status);
        let sent = self.connection.respond(&mut self.end, id, &head, end);
        sent.expect("an answer");
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, BodyError> {
        self.connection.write_body(&mut self.end, id, data)
    }

    fn read(&mut self, id: StreamId) -> Result<Option<Bytes>, BodyError> {
        self.connection.read_body(&mut self.end, id, 1000)
    }

    /// All of a body that is there, and whether that was its end.
    fn read_all(&mut self, id: StreamId) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            match self.read(id) {
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) => return (body, true),
                Err(_) => return (body, false),
            }
        }
    }
}

fn pump(a: &mut Host, b: &mut Host) {
    for _ in 0..10_000 {
        if !a.turn() & !b.turn() {
            return;
        }
    }
    panic!("two connections that never come to rest");
}

/// A client and a server that have exchanged their settings.
fn connected(limits: Limits, config: &Config) -> (Host, Host) {
    let (client, server) = pair(limits);
    let mut client = Host::new(client, config.clone());
    let mut server = Host::new(server, config.clone());
    pump(&mut client, &mut server);
    for host in [&mut client, &mut server] {
        assert!(matches!(host.next(), Event::Settings(_)));
        assert!(host.events.is_empty());
    }
    (client, server)
}

fn get(path: &str) -> RequestHead {
    let uri = format!("https://example.org{path}");
    Request::get(uri).body(()).unwrap().into_parts().0
}

fn post(path: &str) -> RequestHead {
    let mut head = get(path);
    head.method = Method::POST;
    head
}

fn response(status: u16) -> ResponseHead {
    let response = Response::builder().status(status);
    response.body(()).unwrap().into_parts().0
}
