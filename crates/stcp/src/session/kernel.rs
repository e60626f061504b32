//! What a session does for a stream whose sent records the kernel makes (kTLS).
//!
//! 1. Once the output is sent, [`key_for_kernel`](Session::key_for_kernel) is handed to the kernel, and
//!    [`on_kernel_has_key`](Session::on_kernel_has_key) says so;
//! 2. [`may_write`](Session::may_write) before data is written to the socket, and
//!    [`on_written`](Session::on_written) after it;
//! 3. [`kernel_alert`](Session::kernel_alert) goes to the socket after all data: our stream ends there.
//!
//! Reading is as ever, a peer's new keys too. The kernel's own key stays: where a new one is due, no
//! more data is written. That is no end in order: only whoever has written everything sends close_notify.

use super::Session;
use super::sender::Sender;
use crate::error::SessionError;
use crate::keys::CipherKeys;

impl Session {
    /// The key to send with and the number of its next record, for a kernel that makes the records
    /// from here on. `None` while there is output, which must be sent first: such as a new key that
    /// was due.
    ///
    /// # Errors
    /// Nothing more may be written, or the kernel has the key already.
    pub fn key_for_kernel(&mut self) -> Result<Option<(&CipherKeys, u64)>, SessionError> {
        self.may_write()?;
        self.sender.sealer()?;
        // First: a peer that asks for new keys and does not read gets no more of them.
        if !self.outbox.is_empty() {
            return Ok(None);
        }
        if let Err(error) = self.before_data() {
            return Err(self.fail(error));
        }
        let is_all_sent = self.outbox.is_empty();
        let sealer = self.sender.sealer()?;
        Ok(is_all_sent.then(|| sealer.key()))
    }

    /// The kernel has that key: what is written to the socket is data now.
    pub fn on_kernel_has_key(&mut self) {
        if let Sender::Session(sealer) = &self.sender {
            self.sender = Sender::Kernel {
                budget: sealer.budget(),
                alert: None,
            };
        }
    }

    /// Whether the kernel makes the records that we send.
    pub fn is_kernel_sending(&self) -> bool {
        self.sender.is_kernel()
    }

    /// So many bytes were written to the socket in one call.
    pub fn on_written(&mut self, len: u64) {
        if let Sender::Kernel { budget, .. } = &mut self.sender {
            budget.charge_stream(len);
        }
    }

    /// The content of an alert record that the kernel is to send.
    pub fn kernel_alert(&self) -> Option<[u8; 2]> {
        match self.sender {
            Sender::Kernel { alert, .. } => alert,
            Sender::Session(_) => None,
        }
    }

    /// It was sent.
    pub fn on_kernel_alert_sent(&mut self) {
        if let Sender::Kernel { alert, .. } = &mut self.sender {
            *alert = None;
        }
    }
}

#[cfg(test)]
mod tests;
