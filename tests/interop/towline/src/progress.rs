//! How far a client has come, and what it does on the way: key updates and moves, by the bytes that
//! have arrived. Shared by the fetches of one connection.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use interop_contract::{self as contract, ClientArgs};
use towline::{Connection, Endpoint, MigrateError};

use crate::Error;

/// After the first move the client goes on to another address of its host once it has received so
/// many bytes.
const SECOND_MOVE_AFTER: u64 = 4_000_000;
/// That address: all of 127.0.0.0/8 is the host's.
const SECOND_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// What the fetches of one connection have received, and what is still to be done.
pub(crate) struct Progress {
    endpoint: Endpoint,
    received: AtomicU64,
    /// Key updates begun.
    begun: AtomicU64,
    /// Bytes received at which the next key update is tried.
    update_at: AtomicU64,
    /// Bytes received at which the client moves next.
    move_at: AtomicU64,
}

impl Progress {
    /// Nothing was received yet.
    pub(crate) fn new(endpoint: &Endpoint, args: &ClientArgs) -> Self {
        let only_if = |asked: bool, at| AtomicU64::new(if asked { at } else { u64::MAX });
        Self {
            endpoint: endpoint.clone(),
            received: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            update_at: only_if(args.key_update, contract::UPDATE_AFTER),
            move_at: only_if(args.migrate, contract::MIGRATE_AFTER),
        }
    }

    /// So much has arrived in all.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Key updates that this end began.
    pub(crate) fn updates_begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// `length` bytes more have arrived.
    pub(crate) fn on_received(&self, connection: &Connection, length: usize) -> Result<(), Error> {
        let length = length as u64;
        let total = self.received.fetch_add(length, Ordering::Relaxed) + length;
        if total >= self.update_at.load(Ordering::Relaxed) {
            self.update_keys(connection, total);
        }
        if total >= self.move_at.load(Ordering::Relaxed) {
            self.move_on(connection)?;
        }
        Ok(())
    }

    fn update_keys(&self, connection: &Connection, total: u64) {
        // The call does nothing where RFC 9001 §6.1 forbids an update now.
        let next = if connection.initiate_key_update() {
            self.begun.fetch_add(1, Ordering::Relaxed);
            u64::MAX
        } else {
            total + contract::UPDATE_AGAIN_AFTER
        };
        self.update_at.store(next, Ordering::Relaxed);
    }

    /// To another socket at once; later to another address, once that has proved to lead to the
    /// server.
    fn move_on(&self, connection: &Connection) -> Result<(), Error> {
        if self.move_at.load(Ordering::Relaxed) < SECOND_MOVE_AFTER {
            let mut any = self.endpoint.local_addr();
            any.set_port(0);
            self.endpoint.rebind(UdpSocket::bind(any)?)?;
            self.move_at.store(SECOND_MOVE_AFTER, Ordering::Relaxed);
            return Ok(());
        }
        match connection.migrate(SECOND_ADDRESS) {
            // The server's next connection ID is under way; the next bytes try again.
            Err(MigrateError::NoConnectionId) => Ok(()),
            result => {
                self.move_at.store(u64::MAX, Ordering::Relaxed);
                Ok(result?)
            }
        }
    }

    /// Whether the connection went wherever it was told to.
    pub(crate) fn check_moves(&self, connection: &Connection) -> Result<(), Error> {
        let stats = connection.stats();
        match (stats.paths_validated, connection.local_ip()) {
            (2.., Some(SECOND_ADDRESS)) => Ok(()),
            (validated, now) => {
                let failed = stats.paths_failed;
                Err(format!(
                    "2 moves, of which {validated} were proven and {failed} failed; now at {now:?}"
                )
                .into())
            }
        }
    }
}
