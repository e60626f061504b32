//! Datagrams of a [`Connection`]: sending, receiving, and what became of those sent.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use towline_quic::{
    Connection as Engine, ConnectionError, DatagramFate, DatagramOptions, SendDatagramError,
};
use towline_wire::Time;

use super::connection::Connection;
use super::entry::Interest;
use super::reference::lost;
use super::waiter::Waiter;
use crate::io::Change;

#[cfg(doc)]
use super::entry::MAX_DATAGRAM_FATES;

impl Connection {
    /// Queues a datagram, or refuses it at once: datagrams are lost rather than delayed.
    ///
    /// # Errors
    /// When the peer takes none, it is too large, the queue is full or the connection is over.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), SendDatagramError> {
        self.send_datagram_with(b"", data, &DatagramOptions::default())
    }

    /// As [`send_datagram`](Self::send_datagram), with a greatest age, an order, one of several senders,
    /// or an id under which [`datagram_fate`](Self::datagram_fate) tells what became of it. `prefix`
    /// goes before `data`; neither is copied but into the packet, where the prefix has 16 bytes or less.
    ///
    /// # Errors
    /// The same.
    pub fn send_datagram_with(
        &self,
        prefix: &[u8],
        mut data: Bytes,
        options: &DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        let now = self.time_for(options);
        self.reference.with(|engine, entry| {
            let result = match (&entry.error, engine) {
                (None, Some(engine)) => engine.send_datagram_with(now, prefix, &mut data, options),
                _ => Err(SendDatagramError::ConnectionLost(lost(entry))),
            };
            let change = if result.is_ok() {
                Change::Made
            } else {
                Change::None
            };
            (result, change)
        })
    }

    /// Queues a datagram, waiting while the queue is full.
    ///
    /// Cancel safe: a dropped call queued nothing.
    ///
    /// # Errors
    /// When the peer takes none, it is too large or the connection is over.
    pub async fn send_datagram_wait(&self, mut data: Bytes) -> Result<(), SendDatagramError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_send_datagram(&mut waiter, cx, &mut data)).await
    }

    /// As [`send_datagram_wait`](Self::send_datagram_wait), for callers that poll: `data` is taken when it is
    /// queued.
    pub fn poll_send_datagram(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<(), SendDatagramError>> {
        self.poll_send_datagram_with(waiter, cx, b"", data, &DatagramOptions::default())
    }

    /// As [`poll_send_datagram`](Self::poll_send_datagram), with what
    /// [`send_datagram_with`](Self::send_datagram_with) has beside the data. A greatest age counts from
    /// when it is queued.
    pub fn poll_send_datagram_with(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        prefix: &[u8],
        data: &mut Bytes,
        options: &DatagramOptions,
    ) -> Poll<Result<(), SendDatagramError>> {
        let now = self.time_for(options);
        let (interest, waker) = (Interest::DatagramOut, Some(cx.waker()));
        // An error is large, and would be copied from call to call although there is none.
        let mut error = None;
        let queued = waiter.poll_connection(&self.reference, interest, waker, |engine, entry| {
            let result = match (&entry.error, engine) {
                (None, Some(engine)) => engine.send_datagram_with(now, prefix, data, options),
                _ => {
                    error = Some(SendDatagramError::ConnectionLost(lost(entry)));
                    return Poll::Ready(((), Change::None));
                }
            };
            match result {
                Ok(()) => {}
                Err(SendDatagramError::Full) => return Poll::Pending,
                Err(refused) => error = Some(refused),
            }
            Poll::Ready(((), Change::Made))
        });
        queued.map(|()| error.map_or(Ok(()), Err))
    }

    /// Only an age needs the time, and a look at the clock costs a quarter of what a datagram does.
    fn time_for(&self, options: &DatagramOptions) -> Time {
        match options.max_age {
            Some(_) => self.reference.now(),
            None => Time::ZERO,
        }
    }

    /// What became of the next datagram that was sent with an id: the id, and its fate. At most
    /// [`MAX_DATAGRAM_FATES`] wait to be asked for; the oldest go.
    ///
    /// Cancel safe: a dropped call took none.
    ///
    /// # Errors
    /// When the connection is over and all fates that were known before were taken.
    pub async fn datagram_fate(&self) -> Result<(u64, DatagramFate), ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_datagram_fate(&mut waiter, cx)).await
    }

    /// As [`datagram_fate`](Self::datagram_fate), for callers that poll.
    pub fn poll_datagram_fate(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(u64, DatagramFate), ConnectionError>> {
        self.take_fate(waiter, Some(cx.waker()))
    }

    /// As [`datagram_fate`](Self::datagram_fate), but pending and not waiting while none is known.
    pub fn try_datagram_fate(&self) -> Poll<Result<(u64, DatagramFate), ConnectionError>> {
        self.take_fate(&mut Waiter::new(), None)
    }

    fn take_fate(
        &self,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Result<(u64, DatagramFate), ConnectionError>> {
        let interest = Interest::DatagramFate;
        waiter.poll_connection(&self.reference, interest, waker, |_, entry| {
            match (entry.fates.pop_front(), &entry.error, entry.handle) {
                (Some(fate), _, _) => Poll::Ready((Ok(fate), Change::None)),
                (None, Some(error), _) => Poll::Ready((Err(error.clone()), Change::None)),
                (None, None, None) => Poll::Ready((Err(lost(entry)), Change::None)),
                (None, None, Some(_)) => Poll::Pending,
            }
        })
    }

    /// The next datagram that arrived.
    ///
    /// Cancel safe: a dropped call took none.
    ///
    /// # Errors
    /// When the connection is over and all datagrams that arrived before were read.
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_read_datagram(&mut waiter, cx)).await
    }

    /// As [`read_datagram`](Self::read_datagram), for callers that poll.
    pub fn poll_read_datagram(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, ConnectionError>> {
        self.take_datagram(waiter, Some(cx.waker()))
    }

    /// As [`read_datagram`](Self::read_datagram), but pending and not waiting while there is none.
    pub fn try_read_datagram(&self) -> Poll<Result<Bytes, ConnectionError>> {
        self.take_datagram(&mut Waiter::new(), None)
    }

    fn take_datagram(
        &self,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Result<Bytes, ConnectionError>> {
        let interest = Interest::DatagramIn;
        waiter.poll_connection(&self.reference, interest, waker, |engine, entry| {
            let datagram = engine.and_then(|engine| engine.recv_datagram());
            match (datagram, &entry.error, entry.handle) {
                (Some(datagram), _, _) => Poll::Ready((Ok(datagram), Change::None)),
                (None, Some(error), _) => Poll::Ready((Err(error.clone()), Change::None)),
                (None, None, None) => Poll::Ready((Err(lost(entry)), Change::None)),
                (None, None, Some(_)) => Poll::Pending,
            }
        })
    }

    /// The largest datagram that can be sent now; `None` if the peer takes none.
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.reference
            .look(|engine, _| engine.and_then(Engine::max_datagram_len))
    }

    /// Waits until [`max_datagram_len`](Self::max_datagram_len) is another than `known`, and says which:
    /// more, once the path proved to carry larger packets, or less, when it stopped. Cancel safe.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn max_datagram_len_changed(
        &self,
        known: Option<usize>,
    ) -> Result<Option<usize>, ConnectionError> {
        let mut waiter = Waiter::new();
        poll_fn(|cx| self.poll_max_datagram_len_changed(&mut waiter, cx, known)).await
    }

    /// As [`max_datagram_len_changed`](Self::max_datagram_len_changed), for callers that poll.
    pub fn poll_max_datagram_len_changed(
        &self,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        known: Option<usize>,
    ) -> Poll<Result<Option<usize>, ConnectionError>> {
        let (interest, waker) = (Interest::Path, Some(cx.waker()));
        waiter.poll_connection(&self.reference, interest, waker, |engine, entry| {
            let (None, Some(engine)) = (&entry.error, engine) else {
                return Poll::Ready((Err(lost(entry)), Change::None));
            };
            match engine.max_datagram_len() {
                len if len == known => Poll::Pending,
                len => Poll::Ready((Ok(len), Change::None)),
            }
        })
    }

    /// Bytes that the queue of datagrams to be sent has room for. While it is not 0, a datagram of no
    /// more bytes, and of no more than [`max_datagram_len`](Self::max_datagram_len), is queued at once. 0
    /// if the peer takes none, and after the end.
    pub fn datagram_send_buffer_space(&self) -> usize {
        self.reference
            .look(|engine, _| engine.map_or(0, Engine::datagram_send_buffer_space))
    }
}
