//! A session whose records the kernel makes (kTLS): what remains for user space.
//!
//! 1. [`may_write`](KernelSession::may_write) before data is written, and
//!    [`on_written`](KernelSession::on_written) after it;
//! 2. of what the kernel hands up, data goes to [`on_data`](KernelSession::on_data), anything else
//!    to [`handle_record`](KernelSession::handle_record), in pieces if need be, and after the last
//!    one to [`on_record_without_data`](KernelSession::on_record_without_data);
//! 3. [`CLOSE_NOTIFY`] is the content of the alert record that ends our stream, and after a failure
//!    [`last_words`](KernelSession::last_words) that of the alert that says why.
//!
//! The kernel keeps one key for each direction to the end: a peer that changes its key, or a key
//! that is used up, ends the connection.

use rustls::{AlertDescription, ContentType};

use crate::error::SessionError;
use crate::keys::{KernelKeys, KeySchedule};
use crate::limits::{BlockBudget, RecordsWithoutData};
use crate::post_handshake::{Message, Messages};

/// The content of the alert that ends a stream: level warning, close_notify.
pub const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// What is left of a session beside the kernel's records.
#[derive(Debug)]
pub struct KernelSession {
    schedule: KeySchedule,
    messages: Messages,
    transmit: BlockBudget,
    receive: BlockBudget,
    without_data: RecordsWithoutData,
    read_closed: bool,
    write_closed: bool,
    failed: Option<SessionError>,
}

impl KernelSession {
    /// Beside a socket that has these keys.
    pub fn new(keys: &KernelKeys, schedule: KeySchedule) -> Self {
        Self {
            schedule,
            messages: Messages::default(),
            transmit: keys.transmit.0.budget(),
            receive: keys.receive.0.budget(),
            without_data: RecordsWithoutData::default(),
            read_closed: false,
            write_closed: false,
            failed: None,
        }
    }

    /// Whether more may be written.
    ///
    /// # Errors
    /// The end was declared, the session has failed, or the key is used up: then close_notify is
    /// due.
    pub fn may_write(&self) -> Result<(), SessionError> {
        self.alive()?;
        if self.write_closed {
            return Err(SessionError::WriteAfterClose);
        }
        match self.transmit.is_exhausted() {
            true => Err(SessionError::KeyExhausted),
            false => Ok(()),
        }
    }

    /// So many bytes were written in one call.
    pub fn on_written(&mut self, len: u64) {
        self.transmit.charge_stream(len);
    }

    /// Whether anything may still be read: what failed once fails ever after.
    ///
    /// # Errors
    /// Why the session failed.
    pub fn alive(&self) -> Result<(), SessionError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// So many bytes of data came.
    ///
    /// # Errors
    /// The peer's key is used up, or data came where none may.
    pub fn on_data(&mut self, len: u64) -> Result<(), SessionError> {
        if len > 0 {
            self.without_data.on_data();
        }
        self.receive.charge_stream(len);
        if self.receive.is_exhausted() {
            return Err(self.fail(SessionError::KeyExhausted));
        }
        if self.messages.is_inside() {
            return Err(self.fail(SessionError::peer(
                "a record inside a handshake message",
                AlertDescription::UnexpectedMessage,
            )));
        }
        Ok(())
    }

    /// A record that is not data; afterwards [`is_read_closed`](Self::is_read_closed) may be true.
    ///
    /// # Errors
    /// An alert of the peer's, a key update, or what may not be sent.
    pub fn handle_record(&mut self, content: u8, bytes: &[u8]) -> Result<(), SessionError> {
        let handled = match (ContentType::from(content), bytes) {
            (ContentType::Alert, &[_, description]) => match AlertDescription::from(description) {
                AlertDescription::CloseNotify => {
                    self.read_closed = true;
                    Ok(())
                }
                AlertDescription::UserCanceled => Ok(()),
                alert => Err(SessionError::Alert(alert)),
            },
            (ContentType::Handshake, bytes) => self.handle_messages(bytes),
            _ => Err(SessionError::peer(
                "a record of an unknown type",
                AlertDescription::UnexpectedMessage,
            )),
        };
        handled.map_err(|error| self.fail(error))
    }

    /// A record that is not data has come whole.
    ///
    /// # Errors
    /// The peer has sent too many of them in a row.
    pub fn on_record_without_data(&mut self) -> Result<(), SessionError> {
        let counted = self.without_data.on_record();
        counted.map_err(|error| self.fail(error))
    }

    /// A record came that the kernel could not open.
    pub fn on_bad_record(&mut self) -> SessionError {
        self.fail(SessionError::BadRecord)
    }

    fn handle_messages(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.messages.handle_record(bytes)?;
        while let Some(message) = self.messages.next()? {
            match message {
                Message::Ticket(body) => self.schedule.on_ticket(&body)?,
                Message::KeyUpdate { .. } => return Err(SessionError::KeyExhausted),
            }
        }
        Ok(())
    }

    /// The stream has ended. In order only after close_notify.
    ///
    /// # Errors
    /// It was cut off.
    pub fn handle_eof(&self) -> Result<(), SessionError> {
        match self.read_closed {
            true => Ok(()),
            false => Err(SessionError::Truncated),
        }
    }

    /// The end of our stream was declared.
    pub fn on_write_closed(&mut self) {
        self.write_closed = true;
    }

    /// The content of the alert that tells the peer of our failure. Where only a key is at its end,
    /// the stream ends in order.
    pub fn last_words(&self) -> Option<[u8; 2]> {
        match self.failed.as_ref().filter(|_| !self.write_closed)? {
            SessionError::KeyExhausted => Some(CLOSE_NOTIFY),
            error => error.alert().map(|alert| [2, u8::from(alert)]),
        }
    }

    /// Whether the peer ended its stream with close_notify.
    pub fn is_read_closed(&self) -> bool {
        self.read_closed
    }

    fn fail(&mut self, error: SessionError) -> SessionError {
        tracing::debug!(%error, "session failed");
        self.failed.get_or_insert(error).clone()
    }
}

#[cfg(test)]
mod tests;
