//! [`Varints`]: a few variable-length integers at the front of something, as they arrive.
//!
//! A frame begins with two (RFC 9114 §7.1), a unidirectional stream with one (§6.2). No byte beyond
//! them is read, so that what follows stays with the transport until somebody wants it.

use towline_wire::{Reader, StreamId};

use crate::transport::{ReadError, Transport};

#[cfg(test)]
mod tests;

/// `N` integers, at most two of them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Varints<const N: usize> {
    bytes: [u8; 16],
    len: usize,
    /// How long those were that were read last.
    last: usize,
}

/// Why the integers are not whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Incomplete {
    Blocked,
    /// The stream ended; `inside` them or in front of the first.
    End {
        inside: bool,
    },
    Reset(u64),
    Closed,
}

impl From<ReadError> for Incomplete {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Blocked => Self::Blocked,
            ReadError::Reset(code) => Self::Reset(code),
            ReadError::Closed => Self::Closed,
        }
    }
}

impl<const N: usize> Varints<N> {
    /// Reads on, and starts anew when they are whole.
    pub(crate) fn read<T: Transport>(
        &mut self,
        transport: &mut T,
        id: StreamId,
    ) -> Result<[u64; N], Incomplete> {
        loop {
            let missing = self.least_len() - self.len;
            if missing == 0 {
                return Ok(self.take());
            }
            let Some(bytes) = transport.read(id, missing)? else {
                let inside = self.len > 0;
                return Err(Incomplete::End { inside });
            };
            let end = self.len + bytes.len();
            let Some(room) = self.bytes.get_mut(self.len..end) else {
                return Err(Incomplete::Closed);
            };
            room.copy_from_slice(&bytes);
            self.len = end;
        }
    }

    /// How many bytes the integers had that were read last.
    pub(crate) fn last_len(&self) -> u64 {
        self.last as u64
    }

    /// How long they are at least, after what has come of them.
    fn least_len(&self) -> usize {
        let mut at = 0;
        for _ in 0..N {
            at += match self.bytes[..self.len].get(at) {
                Some(first) => 1 << (first >> 6),
                None => 1,
            };
        }
        at
    }

    fn take(&mut self) -> [u64; N] {
        let mut reader = Reader::new(&self.bytes[..self.len]);
        let values = std::array::from_fn(|_| reader.varint().unwrap_or_default());
        self.last = std::mem::take(&mut self.len);
        values
    }
}
