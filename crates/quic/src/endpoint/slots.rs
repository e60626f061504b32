//! The table of connections, and whose turn it is to send and to be heard.
//!
//! Owned by `Endpoint`, which finds connections by their handles here. A place in the table is used
//! again, and its generation tells apart the handles of those that had it. It never acts on a
//! connection.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use towline_wire::ConnectionId;

use super::handshakes::Place;
use super::memory::Held;
use crate::connection::Connection;

/// Names a connection of one endpoint until its `Event::Drained`, or [`Endpoint::forget`] where what was
/// not read is kept.
///
/// [`Endpoint::forget`]: crate::Endpoint::forget
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Destination of a client's first Initials, and where they came from.
pub(super) type Original = (ConnectionId, SocketAddr);

/// A connection, and what the endpoint keeps of it.
pub(super) struct Resident {
    pub(super) connection: Connection,
    /// A server's handshake in progress, and the place it holds.
    pub(super) handshake: Option<Place>,
    /// What the client's first Initials are known by, as long as the connection lasts.
    pub(super) original: Option<Original>,
    /// Of the peer's connection ID in use, and where the peer is: with it that ends the connection.
    pub(super) reset_token: Option<(SocketAddr, [u8; 16])>,
    /// Where it sends datagrams that a router may find too big.
    pub(super) large_to: Option<SocketAddr>,
    pub(super) held: Held,
    /// It has ended and is here only to be read.
    pub(super) over: bool,
    /// In the `ready` queue.
    ready: bool,
    /// In the `eventful` queue.
    eventful: bool,
}

impl Resident {
    pub(super) fn new(connection: Connection, held: Held) -> Self {
        Self {
            connection,
            handshake: None,
            original: None,
            reset_token: None,
            large_to: None,
            held,
            over: false,
            ready: false,
            eventful: false,
        }
    }

    /// It has something to send and no turn yet.
    pub(super) fn wants_turn(&self) -> bool {
        !self.ready && !self.over && self.connection.may_send()
    }

    /// It has something to tell and is not listed for it yet.
    pub(super) fn wants_to_tell(&self) -> bool {
        !self.eventful && self.connection.has_events()
    }
}

#[derive(Default)]
struct Slot {
    generation: u32,
    resident: Option<Box<Resident>>,
}

#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections that may have something to send, in the order of their turns.
    ready: VecDeque<ConnectionHandle>,
    /// Connections that may have something to tell.
    eventful: VecDeque<ConnectionHandle>,
    /// Connections that are over and here to be read.
    over: BTreeSet<ConnectionHandle>,
}

impl Slots {
    pub(super) fn insert(&mut self, resident: Resident) -> ConnectionHandle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.resident = Some(Box::new(resident));
        ConnectionHandle {
            index,
            generation: slot.generation,
        }
    }

    pub(super) fn remove(&mut self, handle: ConnectionHandle) -> Option<Box<Resident>> {
        if self.get(handle)?.over {
            self.over.remove(&handle);
        }
        let slot = &mut self.slots[handle.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(handle.index);
        slot.resident.take()
    }

    pub(super) fn get(&self, handle: ConnectionHandle) -> Option<&Resident> {
        self.slots
            .get(handle.index as usize)
            .filter(|slot| slot.generation == handle.generation)
            .and_then(|slot| slot.resident.as_deref())
    }

    pub(super) fn get_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Resident> {
        self.slots
            .get_mut(handle.index as usize)
            .filter(|slot| slot.generation == handle.generation)
            .and_then(|slot| slot.resident.as_deref_mut())
    }

    /// The connection is over; it stays until it is removed, and only to be read.
    pub(super) fn retire(&mut self, handle: ConnectionHandle) {
        if let Some(resident) = self.get_mut(handle) {
            resident.over = true;
            self.over.insert(handle);
        }
    }

    /// Any of the connections that are over.
    pub(super) fn any_over(&self) -> Option<ConnectionHandle> {
        self.over.first().copied()
    }

    /// Places in the table, those that are free included.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The connection at a place, if there is one.
    pub(super) fn at(&self, index: usize) -> Option<(ConnectionHandle, &Resident)> {
        let slot = self.slots.get(index)?;
        let handle = ConnectionHandle {
            index: index as u32,
            generation: slot.generation,
        };
        Some((handle, slot.resident.as_deref()?))
    }

    /// Handles of all connections that are not over, by their places.
    pub(super) fn handles(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        let residents = (0..self.len()).filter_map(|index| self.at(index));
        residents.filter_map(|(handle, resident)| (!resident.over).then_some(handle))
    }

    // ---- turns ----

    /// The connection gets a turn to send.
    pub(super) fn mark_ready(&mut self, handle: ConnectionHandle) {
        if let Some(resident) = self.get_mut(handle)
            && !std::mem::replace(&mut resident.ready, true)
        {
            self.ready.push_back(handle);
        }
    }

    /// Takes the connection whose turn it is.
    pub(super) fn next_ready(&mut self) -> Option<(ConnectionHandle, &mut Resident)> {
        let handle = loop {
            let handle = self.ready.pop_front()?;
            if self.get(handle).is_some_and(|resident| !resident.over) {
                break handle;
            }
        };
        let resident = self.get_mut(handle)?;
        resident.ready = false;
        Some((handle, resident))
    }

    /// A connection that somebody acts on: it gets a turn, and is asked for its events.
    pub(super) fn touch(&mut self, handle: ConnectionHandle) -> Option<&mut Resident> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        let resident = slot.resident.as_deref_mut()?;
        if slot.generation != handle.generation {
            return None;
        }
        if resident.over {
            return Some(resident);
        }
        if !std::mem::replace(&mut resident.ready, true) {
            self.ready.push_back(handle);
        }
        if !std::mem::replace(&mut resident.eventful, true) {
            self.eventful.push_back(handle);
        }
        Some(resident)
    }

    /// The connection is asked for its events.
    pub(super) fn mark_eventful(&mut self, handle: ConnectionHandle) {
        if let Some(resident) = self.get_mut(handle)
            && !std::mem::replace(&mut resident.eventful, true)
        {
            self.eventful.push_back(handle);
        }
    }

    /// The connection to be asked for its events.
    pub(super) fn first_eventful(&self) -> Option<ConnectionHandle> {
        self.eventful.front().copied()
    }

    /// The first one has nothing more to tell.
    pub(super) fn pop_eventful(&mut self) {
        if let Some(handle) = self.eventful.pop_front()
            && let Some(resident) = self.get_mut(handle)
        {
            resident.eventful = false;
        }
    }
}
