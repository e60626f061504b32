//! A session whose records are ours.
//!
//! 1. The driver receives into [`receive_buffer`](Session::receive_buffer);
//! 2. [`read`](Session::read) opens the next record into the caller's buffer, and deals with what
//!    is not data: alerts, tickets, key updates;
//! 3. [`write`](Session::write) seals the caller's bytes into the output;
//! 4. the driver sends [`output`](Session::output).
//!
//! Memory: at most one record and one `RECEIVE_ROOM` in, `MAX_OUTPUT` and one record out; both
//! buffers are given back when they are empty and the session idles.

use bytes::{Buf, BytesMut};
use rustls::{AlertDescription, ContentType};

use crate::error::SessionError;
use crate::keys::{KernelKeys, KeySchedule};
use crate::limits::Verdict;
use crate::post_handshake::{Message, Messages, key_update};
use crate::record::{MAX_PLAINTEXT, OVERHEAD, Opener, Sealer, record_len};

/// What is received at once at most: four records.
const RECEIVE_ROOM: usize = 4 * (MAX_PLAINTEXT + OVERHEAD);

/// Output that makes [`Session::write`] wait.
const MAX_OUTPUT: usize = 64 * 1024;

/// Records in a row that carry no data, before the peer is taken to play games.
const MAX_RECORDS_WITHOUT_DATA: u8 = 32;

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
    sealer: Sealer,
    opener: Opener,
    schedule: KeySchedule,
    inbox: BytesMut,
    /// Opened and not yet read.
    plaintext: BytesMut,
    outbox: BytesMut,
    messages: Messages,
    records_without_data: u8,
    /// A KeyUpdate must go before the next data; whether it asks the peer for one.
    key_update_due: Option<bool>,
    /// The peer was asked for a key update and has not answered.
    key_update_asked: bool,
    write_closed: bool,
    read_closed: bool,
    failed: Option<SessionError>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("write_closed", &self.write_closed)
            .field("read_closed", &self.read_closed)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(
        keys: KernelKeys,
        schedule: KeySchedule,
        inbox: BytesMut,
        outbox: BytesMut,
    ) -> Result<Self, SessionError> {
        Ok(Self {
            sealer: Sealer::new(&keys.transmit.0, keys.transmit.1)?,
            opener: Opener::new(&keys.receive.0, keys.receive.1)?,
            schedule,
            inbox,
            plaintext: BytesMut::new(),
            outbox,
            messages: Messages::default(),
            records_without_data: 0,
            key_update_due: None,
            key_update_asked: false,
            write_closed: false,
            read_closed: false,
            failed: None,
        })
    }

    /// Where to append bytes of the stream: room for several records. Only after
    /// [`Read::Wanting`], so that it cannot grow without bound.
    pub fn receive_buffer(&mut self) -> &mut BytesMut {
        self.inbox.reserve(RECEIVE_ROOM);
        &mut self.inbox
    }

    /// The stream has ended. In order only after close_notify.
    pub fn handle_eof(&mut self) -> Result<(), SessionError> {
        if self.read_closed {
            return Ok(());
        }
        Err(self.fail(SessionError::Truncated))
    }

    /// The next bytes for the application, into `out`.
    pub fn read(&mut self, out: &mut [u8]) -> Result<Read, SessionError> {
        if out.is_empty() {
            return Ok(Read::Data(0));
        }
        loop {
            if !self.plaintext.is_empty() {
                let len = self.plaintext.len().min(out.len());
                self.plaintext.copy_to_slice(&mut out[..len]);
                if self.plaintext.is_empty() {
                    // Gives the buffer back to the inbox.
                    self.plaintext = BytesMut::new();
                }
                return Ok(Read::Data(len));
            }
            if self.read_closed {
                return Ok(Read::End);
            }
            self.alive()?;
            match self.read_record(out) {
                Ok(Some(0)) => {}
                Ok(Some(len)) => return Ok(Read::Data(len)),
                Ok(None) => return Ok(Read::Wanting),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Opens the next record: `None` if it is not whole yet, or the bytes that it put into `out`.
    fn read_record(&mut self, out: &mut [u8]) -> Result<Option<usize>, SessionError> {
        let Some(len) = record_len(&self.inbox)?.filter(|len| *len <= self.inbox.len()) else {
            return Ok(None);
        };
        if self.opener.verdict() == Verdict::Exhausted {
            return Err(SessionError::KeyExhausted);
        }
        // A large buffer gets the record opened straight into it.
        if let Some((content, opened)) = self.opener.open_into(&mut self.inbox[..len], out)? {
            self.inbox.advance(len);
            if content == ContentType::ApplicationData && !self.messages.is_inside() {
                self.on_data(opened)?;
                return Ok(Some(opened));
            }
            self.handle_content(content, &out[..opened])?;
            return Ok(Some(0));
        }
        let mut record = self.inbox.split_to(len);
        let (content, range) = self.opener.open_in_place(&mut record)?;
        if content == ContentType::ApplicationData && !self.messages.is_inside() {
            self.on_data(range.len())?;
            record.truncate(range.end);
            record.advance(range.start);
            self.plaintext = record;
        } else {
            self.handle_content(content, &record[range])?;
        }
        Ok(Some(0))
    }

    fn on_data(&mut self, len: usize) -> Result<(), SessionError> {
        if len == 0 {
            return self.on_record_without_data();
        }
        self.records_without_data = 0;
        if self.opener.verdict() == Verdict::Update && !self.key_update_asked {
            self.key_update_asked = true;
            self.key_update_due = Some(true);
        }
        Ok(())
    }

    fn on_record_without_data(&mut self) -> Result<(), SessionError> {
        self.records_without_data += 1;
        if self.records_without_data > MAX_RECORDS_WITHOUT_DATA {
            return Err(SessionError::peer(
                "too many records without data in a row",
                AlertDescription::UnexpectedMessage,
            ));
        }
        Ok(())
    }

    fn handle_content(&mut self, content: ContentType, bytes: &[u8]) -> Result<(), SessionError> {
        self.on_record_without_data()?;
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
                    if requested {
                        // One answer does for several requests (RFC 8446 §4.6.3).
                        self.key_update_due.get_or_insert(false);
                    }
                }
            }
        }
        Ok(())
    }

    /// Seals as much of `data` as the output has room for; 0 means that it must be sent first.
    pub fn write(&mut self, data: &[u8]) -> Result<usize, SessionError> {
        self.alive()?;
        if self.write_closed {
            return Err(SessionError::WriteAfterClose);
        }
        let mut taken = 0;
        while taken < data.len() && self.outbox.len() < MAX_OUTPUT {
            let len = (data.len() - taken).min(MAX_PLAINTEXT);
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
        match self.sealer.verdict() {
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
        self.sealer = Sealer::new(&keys, 0)?;
        tracing::debug!(request, "new key to send with");
        Ok(())
    }

    fn seal(&mut self, content: ContentType, bytes: &[u8]) -> Result<(), SessionError> {
        self.sealer.seal(content, bytes, &mut self.outbox)
    }

    /// A new key to send with now, and one from the peer if `request`.
    pub fn request_key_update(&mut self, request: bool) -> Result<(), SessionError> {
        self.alive()?;
        match self.update_key(request) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Ends the stream towards the peer with close_notify. Reading goes on.
    pub fn close_write(&mut self) {
        if !self.write_closed && self.failed.is_none() {
            self.write_closed = true;
            self.send_alert(AlertDescription::CloseNotify);
        }
    }

    /// Bytes to send. An answer the peer waits for is among them.
    pub fn output(&mut self) -> &[u8] {
        let may = self.failed.is_none() && !self.write_closed && self.outbox.len() < MAX_OUTPUT;
        if may
            && let Some(request) = self.key_update_due.take()
            && let Err(error) = self.update_key(request)
        {
            self.fail(error);
        }
        &self.outbox
    }

    /// So many bytes of the output were sent.
    pub fn on_sent(&mut self, len: usize) {
        self.outbox.advance(len);
        if self.outbox.is_empty() && self.outbox.capacity() > MAX_OUTPUT {
            self.outbox = BytesMut::new();
        }
    }

    /// Gives back what the buffers hold for nothing; for a session that waits.
    pub fn trim(&mut self) {
        for buffer in [&mut self.inbox, &mut self.plaintext, &mut self.outbox] {
            // A few bytes of a record must not hold room for four.
            if buffer.len() < buffer.capacity() / 4 || buffer.is_empty() {
                *buffer = BytesMut::from(&buffer[..]);
            }
        }
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
            if let Some(alert) = error.alert().filter(|_| !self.write_closed) {
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
        // If not even an alert can be sealed, the stream ends without one: as a truncation.
        let _ = self.seal(ContentType::Alert, &[level, u8::from(alert)]);
    }

    #[cfg(test)]
    pub(crate) fn spend(&mut self, blocks: u64) {
        self.sealer.spend(blocks);
    }
}

#[cfg(test)]
mod tests;
