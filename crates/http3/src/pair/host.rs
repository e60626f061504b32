//! [`Host`]: a connection on its end of the pair, fed with what the end hears.

use std::collections::VecDeque;

use super::{End, Notice};
use crate::{Config, Connection, Event, Transport};

/// A connection on its end of the pair, with the events it told.
#[derive(Debug)]
pub struct Host {
    /// Its end.
    pub end: End,
    /// The connection.
    pub connection: Connection,
    /// What it told, in order; whoever looks takes them.
    pub events: VecDeque<Event>,
}

impl Host {
    /// A connection that has sent its SETTINGS.
    pub fn new(end: End, config: Config) -> Self {
        let mut host = Self {
            connection: Connection::new(end.side(), config),
            end,
            events: VecDeque::new(),
        };
        host.connection.on_established(&mut host.end);
        host
    }

    /// Handles what the transport told; whether there was anything.
    pub fn turn(&mut self) -> bool {
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
}

/// Lets two connections talk until they have nothing more to say.
///
/// # Panics
/// When they never come to rest.
pub fn pump(a: &mut Host, b: &mut Host) {
    for _ in 0..10_000 {
        if !a.turn() & !b.turn() {
            return;
        }
    }
    panic!("two connections that never come to rest");
}
