//! A session whose records are ours.
//!
//! 1. The driver receives into [`receive_buffer`](Session::receive_buffer);
//! 2. [`read`](Session::read) opens the next records into the caller's buffer, and deals with what
//!    is not data: alerts, tickets, key updates;
//! 3. [`write`](Session::write) seals the caller's bytes into the output;
//! 4. the driver sends [`output`](Session::output), and then
//! 5. [`release`](Session::release)s the room that is empty, or [`trim`](Session::trim)s it before
//!    it waits.
//!
//! Whoever has the kernel send, once it has the key of
//! [`key_for_kernel`](Session::key_for_kernel), neither writes here nor finds output.
//!
//! Memory: five records in and five out at most, in buffers of [`Buffers`]; none while it idles.

mod kernel;
mod sender;

use std::ops::Range;

use rustls::{AlertDescription, ContentType};

use crate::buffers::{Buffers, CONTROL_ROOM, Queue};
use crate::error::SessionError;
use crate::keys::{KernelKeys, KeySchedule};
use crate::limits::{MAX_PLAINTEXT, RecordsWithoutData, Verdict};
use crate::post_handshake::{Message, Messages, key_update};
use crate::record::{OVERHEAD, Opener, Sealer, record_len};
use sender::Sender;

/// Least room for which a key update is written; an alert must still fit after it.
const KEY_UPDATE_ROOM: usize = 128;

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, more than none.
    Data(usize),
    /// The peer ended the stream with close_notify.
    End,
    /// More of the stream is needed.
    Wanting,
}

/// A session over a byte stream. After an error it is over; the output may hold an alert.
pub struct Session {
    sender: Sender,
    opener: Opener,
    schedule: KeySchedule,
    inbox: Queue,
    /// Opened in the inbox, before what is next there, and not yet read.
    plaintext: Range<usize>,
    outbox: Queue,
    messages: Messages,
    without_data: RecordsWithoutData,
    /// A KeyUpdate must go before the next data; whether it asks the peer for one.
    key_update_due: Option<bool>,
    /// The peer was asked for a key update and has not answered.
    key_update_asked: bool,
    /// Nothing more is written; what whoever tries is told.
    write_ended: Option<SessionError>,
    read_closed: bool,
    failed: Option<SessionError>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("write_ended", &self.write_ended)
            .field("read_closed", &self.read_closed)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(
        keys: KernelKeys,
        schedule: KeySchedule,
        inbox: &[u8],
        outbox: &[u8],
    ) -> Result<Self, SessionError> {
        Ok(Self {
            sender: Sender::Session(Sealer::new(keys.transmit.0, keys.transmit.1)?),
            opener: Opener::new(&keys.receive.0, keys.receive.1)?,
            schedule,
            inbox: Queue::of(inbox),
            plaintext: 0..0,
            outbox: Queue::of(outbox),
            messages: Messages::default(),
            without_data: RecordsWithoutData::default(),
            key_update_due: None,
            key_update_asked: false,
            write_ended: None,
            read_closed: false,
            failed: None,
        })
    }

    /// Where to put bytes of the stream: room for a record at least. Only after
    /// [`Read::Wanting`]; empty while there is still something to read.
    pub fn receive_buffer(&mut self, buffers: &mut Buffers) -> &mut [u8] {
        if !self.plaintext.is_empty() {
            return &mut [];
        }
        self.inbox.lend(buffers);
        self.inbox.room()
    }

    /// So many bytes were put there.
    pub fn on_received(&mut self, len: usize) {
        self.inbox.on_written(len);
    }

    /// The stream has ended. In order only after close_notify.
    pub fn handle_eof(&mut self) -> Result<(), SessionError> {
        if self.read_closed {
            return Ok(());
        }
        Err(self.fail(SessionError::Truncated))
    }

    /// The next bytes for the application, into `out`. Quickest if that has room for a record and
    /// a byte more ([`MAX_PLAINTEXT`]` + 1`).
    pub fn read(&mut self, out: &mut [u8]) -> Result<Read, SessionError> {
        let mut done = 0;
        while done < out.len() {
            if !self.plaintext.is_empty() {
                done += self.read_plaintext(&mut out[done..]);
                continue;
            }
            if self.read_closed {
                break;
            }
            if let Err(error) = self.alive() {
                return if done > 0 {
                    Ok(Read::Data(done))
                } else {
                    Err(error)
                };
            }
            match self.read_record(&mut out[done..], done > 0) {
                Ok(Some(len)) => done += len,
                Ok(None) if done > 0 => break,
                Ok(None) => return Ok(Read::Wanting),
                // What came before it is good; the next read tells.
                Err(error) => {
                    let error = self.fail(error);
                    return if done > 0 {
                        Ok(Read::Data(done))
                    } else {
                        Err(error)
                    };
                }
            }
        }
        match done {
            0 if !out.is_empty() => Ok(Read::End),
            done => Ok(Read::Data(done)),
        }
    }

    fn read_plaintext(&mut self, out: &mut [u8]) -> usize {
        let len = self.plaintext.len().min(out.len());
        let from = self.plaintext.start;
        out[..len].copy_from_slice(self.inbox.taken(from..from + len));
        self.plaintext.start += len;
        len
    }

    /// Opens the next record: `None` if it is not whole yet, or the bytes that it put into `out`.
    /// With `only_direct`, also `None` if it does not fit there.
    fn read_record(
        &mut self,
        out: &mut [u8],
        only_direct: bool,
    ) -> Result<Option<usize>, SessionError> {
        let record = self.inbox.filled_mut();
        let len = match record_len(record)? {
            Some(len) if len <= record.len() => len,
            _ => return Ok(None),
        };
        if self.opener.verdict() == Verdict::Exhausted {
            return Err(SessionError::KeyExhausted);
        }
        // A large buffer gets the record opened straight into it.
        if let Some((content, opened)) = self.opener.open_into(&mut record[..len], out)? {
            self.inbox.consume(len);
            if content == ContentType::ApplicationData && !self.messages.is_inside() {
                self.on_data(opened)?;
                return Ok(Some(opened));
            }
            self.handle_content(content, &out[..opened])?;
            return Ok(Some(0));
        }
        if only_direct {
            return Ok(None);
        }
        let (content, range) = self.opener.open_in_place(&mut record[..len])?;
        if content == ContentType::ApplicationData && !self.messages.is_inside() {
            self.on_data(range.len())?;
            let at = self.inbox.consume(len);
            self.plaintext = at + range.start..at + range.end;
        } else {
            let bytes = record[range].to_vec();
            self.inbox.consume(len);
            self.handle_content(content, &bytes)?;
        }
        Ok(Some(0))
    }

    fn on_data(&mut self, len: usize) -> Result<(), SessionError> {
        if len == 0 {
            return self.without_data.on_record();
        }
        self.without_data.on_data();
        let can_ask = !self.key_update_asked && !self.sender.is_kernel();
        if can_ask && self.opener.verdict() == Verdict::Update {
            self.key_update_asked = true;
            self.key_update_due = Some(true);
        }
        Ok(())
    }

    fn handle_content(&mut self, content: ContentType, bytes: &[u8]) -> Result<(), SessionError> {
        self.without_data.on_record()?;
        if self.messages.is_inside() && content != ContentType::Handshake {
            return Err(SessionError::peer(
                "a record inside a handshake message",
                AlertDescription::UnexpectedMessage,
            ));
        }
        match content {
            ContentType::Alert => self.handle_alert(bytes),
            ContentType::Handshake => self.handle_messages(bytes),
            _ => Err(SessionError::peer(
                "a record of an unknown type",
                AlertDescription::UnexpectedMessage,
            )),
        }
    }

    fn handle_alert(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let &[_level, description] = bytes else {
            return Err(SessionError::peer(
                "an alert that is not two bytes long",
                AlertDescription::DecodeError,
            ));
        };
        match AlertDescription::from(description) {
            AlertDescription::CloseNotify => {
                self.read_closed = true;
                Ok(())
            }
            // RFC 8446 §6.1: says nothing of the stream.
            AlertDescription::UserCanceled => Ok(()),
            alert => Err(SessionError::Alert(alert)),
        }
    }

    fn handle_messages(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.messages.handle_record(bytes)?;
        while let Some(message) = self.messages.next()? {
            match message {
                Message::Ticket(body) => self.schedule.on_ticket(&body)?,
                Message::KeyUpdate { requested } => {
                    let keys = self.schedule.next_receive()?;
                    self.opener = Opener::new(&keys, 0)?;
                    self.key_update_asked = false;
                    match &mut self.sender {
                        // No more data without a new key (RFC 8446 §4.6.3), and it cannot have one.
                        Sender::Kernel { budget, .. } if requested => budget.exhaust(),
                        // One answer does for several requests.
                        Sender::Session(_) if requested => {
                            self.key_update_due.get_or_insert(false);
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether more may be written. Asked before a write: a refusal for want of a new key stays, and
    /// [`close_write`](Session::close_write) ends no stream in order after it.
    ///
    /// # Errors
    /// The end was declared, a new key is due that the kernel cannot have, or the session has failed.
    pub fn may_write(&mut self) -> Result<(), SessionError> {
        self.alive()?;
        if let Sender::Kernel { budget, .. } = &self.sender
            && budget.is_exhausted()
        {
            self.write_ended.get_or_insert(SessionError::KernelKeyEnded);
        }
        self.write_ended.clone().map_or(Ok(()), Err)
    }

    /// Seals as much of `data` as the output has room for; 0 means that it must be sent first. Not for
    /// who has the kernel send.
    pub fn write(&mut self, data: &[u8], buffers: &mut Buffers) -> Result<usize, SessionError> {
        self.may_write()?;
        self.outbox.lend(buffers);
        let mut taken = 0;
        while taken < data.len() {
            let room = self.outbox.room().len().saturating_sub(CONTROL_ROOM);
            let len = (data.len() - taken).min(MAX_PLAINTEXT);
            if room < len + OVERHEAD {
                break;
            }
            let sealed = self
                .before_data()
                .and_then(|()| self.seal(ContentType::ApplicationData, &data[taken..taken + len]));
            if let Err(error) = sealed {
                return Err(self.fail(error));
            }
            taken += len;
        }
        Ok(taken)
    }

    /// Updates the key where that is due.
    fn before_data(&mut self) -> Result<(), SessionError> {
        match self.sender.sealer()?.verdict() {
            Verdict::Fine => {}
            Verdict::Update => {
                self.key_update_due.get_or_insert(false);
            }
            Verdict::Exhausted => return Err(SessionError::KeyExhausted),
        }
        match self.key_update_due.take() {
            Some(request) => self.update_key(request),
            None => Ok(()),
        }
    }

    fn update_key(&mut self, request: bool) -> Result<(), SessionError> {
        self.seal(ContentType::Handshake, &key_update(request))?;
        let keys = self.schedule.next_transmit()?;
        self.sender = Sender::Session(Sealer::new(keys, 0)?);
        tracing::debug!(request, "new key to send with");
        Ok(())
    }

    fn seal(&mut self, content: ContentType, bytes: &[u8]) -> Result<(), SessionError> {
        let sealer = self.sender.sealer()?;
        self.outbox.grow(bytes.len() + OVERHEAD);
        let len = sealer.seal(content, bytes, self.outbox.room())?;
        self.outbox.on_written(len);
        Ok(())
    }

    /// A new key to send with now, and one from the peer if `request`. Not for who has the kernel send.
    pub fn request_key_update(&mut self, request: bool) -> Result<(), SessionError> {
        self.may_write()?;
        self.sender.sealer()?;
        match self.update_key(request) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Ends the stream towards the peer with close_notify. Reading goes on.
    ///
    /// # Errors
    /// [`KernelKeyEnded`](SessionError::KernelKeyEnded) if a write was refused with that: what the peer
    /// has is not all, so it gets no close_notify and sees a stream that was cut off.
    pub fn close_write(&mut self) -> Result<(), SessionError> {
        match &self.write_ended {
            Some(SessionError::WriteAfterClose) => Ok(()),
            Some(cut) => Err(cut.clone()),
            None => {
                if self.failed.is_none() {
                    self.write_ended = Some(SessionError::WriteAfterClose);
                    self.send_alert(AlertDescription::CloseNotify);
                }
                Ok(())
            }
        }
    }

    /// Ends the session with the alert for a peer that is not let in (RFC 8446 §6.2).
    pub(crate) fn refuse(&mut self) {
        self.write_ended = Some(SessionError::WriteAfterClose);
        self.send_alert(AlertDescription::AccessDenied);
    }

    /// Bytes to send. An answer the peer waits for is among them.
    pub fn output(&mut self) -> &[u8] {
        let may = self.failed.is_none() && self.write_ended.is_none();
        // A peer that asks again and again and does not read gets no more of them.
        if may
            && self.outbox.len() < crate::buffers::BUFFER_LEN - KEY_UPDATE_ROOM
            && let Some(request) = self.key_update_due.take()
            && let Err(error) = self.update_key(request)
        {
            self.fail(error);
        }
        self.outbox.filled()
    }

    /// So many bytes of the output were sent.
    pub fn on_sent(&mut self, len: usize) {
        self.outbox.consume(len);
    }

    /// Gives back buffers that are empty.
    pub fn release(&mut self, buffers: &mut Buffers) {
        if self.plaintext.is_empty() {
            self.inbox.release(buffers);
        }
        self.outbox.release(buffers);
    }

    /// Gives back all that the buffers hold for nothing; for a session that waits.
    pub fn trim(&mut self, buffers: &mut Buffers) {
        if self.plaintext.is_empty() {
            self.inbox.trim(buffers);
        }
        self.outbox.trim(buffers);
    }

    /// Whether the peer ended its stream with close_notify.
    pub fn is_read_closed(&self) -> bool {
        self.read_closed
    }

    fn alive(&self) -> Result<(), SessionError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: SessionError) -> SessionError {
        if self.failed.is_none() {
            tracing::debug!(%error, "session failed");
            if let Some(alert) = error.alert().filter(|_| self.write_ended.is_none()) {
                self.send_alert(alert);
            }
            self.failed = Some(error.clone());
        }
        error
    }

    fn send_alert(&mut self, alert: AlertDescription) {
        let level = match alert {
            AlertDescription::CloseNotify => 1,
            _ => 2,
        };
        let alert = [level, u8::from(alert)];
        match &mut self.sender {
            Sender::Kernel { alert: due, .. } => *due = Some(alert),
            // If not even an alert can be sealed, the stream ends without one: as a truncation.
            Sender::Session(_) => drop(self.seal(ContentType::Alert, &alert)),
        }
    }

    #[cfg(test)]
    pub(crate) fn spend(&mut self, blocks: u64) {
        self.sender.sealer().unwrap().spend(blocks);
    }
}

#[cfg(test)]
pub(crate) mod tests;
