//! Whole connections on a pair of transports: two of ours, or one of ours and a peer of bare bytes.

mod messages;
mod peer;
mod rules;
mod sessions;

use bytes::Bytes;
use http::Method;
use http::request::Parts as RequestHead;
use towline_wire::StreamId;

use crate::pair::{End, Host, Limits, get, pair, pump, response};
use crate::transport::Transport;
use crate::{BodyError, Config, Event, SendError};

impl Host {
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

fn post(path: &str) -> RequestHead {
    let mut head = get(path);
    head.method = Method::POST;
    head
}
