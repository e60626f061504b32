//! The record layer after the handshake (RFC 8446 §5): one key a direction, records sealed from
//! the caller's slice straight into the output and opened in place or into the caller's buffer.

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use rustls::{AlertDescription, ContentType};

use crate::error::SessionError;
use crate::keys::CipherKeys;
use crate::limits::{BlockBudget, MAX_PLAINTEXT, Verdict};

/// Type, legacy version and length.
pub(crate) const HEADER_LEN: usize = 5;

const TAG_LEN: usize = 16;

/// What a record adds to its plaintext: header, content type and tag.
pub(crate) const OVERHEAD: usize = HEADER_LEN + 1 + TAG_LEN;

/// Longest body of a record (RFC 8446 §5.2).
pub(crate) const MAX_BODY: usize = MAX_PLAINTEXT + 256;

/// Length of the record that `bytes` begin with, header included; `None` if the header is not
/// complete.
pub(crate) fn record_len(bytes: &[u8]) -> Result<Option<usize>, SessionError> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if body > MAX_BODY {
        return Err(SessionError::peer(
            "a record longer than a record may be",
            AlertDescription::RecordOverflow,
        ));
    }
    Ok(Some(HEADER_LEN + body))
}

/// One direction's key and the number of its next record.
struct RecordKey {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    budget: BlockBudget,
}

impl RecordKey {
    fn new(keys: &CipherKeys, sequence: u64) -> Result<Self, SessionError> {
        Ok(Self {
            key: keys.aead()?,
            iv: keys.iv(),
            sequence,
            budget: keys.budget(),
        })
    }

    /// The nonce of the next record (RFC 8446 §5.3); numbers never wrap.
    fn nonce(&self) -> Result<Nonce, SessionError> {
        if self.sequence == u64::MAX {
            return Err(SessionError::KeyExhausted);
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Makes records.
pub(crate) struct Sealer {
    current: RecordKey,
    /// The same key as bytes, for the kernel.
    keys: CipherKeys,
}

impl Sealer {
    pub(crate) fn new(keys: CipherKeys, sequence: u64) -> Result<Self, SessionError> {
        let current = RecordKey::new(&keys, sequence)?;
        Ok(Self { current, keys })
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.current.budget.verdict()
    }

    /// The key and the number of its next record.
    pub(crate) fn key(&self) -> (&CipherKeys, u64) {
        (&self.keys, self.current.sequence)
    }

    /// What of the key is used up.
    pub(crate) fn budget(&self) -> BlockBudget {
        self.current.budget
    }

    /// Writes one record of at most [`MAX_PLAINTEXT`] bytes into `out`, which has room for it and
    /// its [`OVERHEAD`]; the record's length.
    pub(crate) fn seal(
        &mut self,
        content: ContentType,
        plaintext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, SessionError> {
        debug_assert!(plaintext.len() <= MAX_PLAINTEXT, "one record's worth");
        let nonce = self.current.nonce()?;
        let body = plaintext.len() + 1 + TAG_LEN;
        let [high, low] = (body as u16).to_be_bytes();
        let header = [u8::from(ContentType::ApplicationData), 3, 3, high, low];
        let record = &mut out[..HEADER_LEN + body];
        let (place, sealed) = record.split_at_mut(HEADER_LEN);
        place.copy_from_slice(&header);
        let (sealed, rest) = sealed.split_at_mut(plaintext.len());
        self.current
            .key
            .seal_out_of_place_scatter(
                nonce,
                Aad::from(header),
                plaintext,
                sealed,
                &[u8::from(content)],
                rest,
            )
            .map_err(|_| SessionError::KeyExhausted)?;
        self.current.sequence += 1;
        self.current.budget.charge(plaintext.len());
        Ok(HEADER_LEN + body)
    }

    #[cfg(test)]
    pub(crate) fn spend(&mut self, blocks: u64) {
        self.current.budget.spend(blocks);
    }
}

/// Reads records.
pub(crate) struct Opener(RecordKey);

impl Opener {
    pub(crate) fn new(keys: &CipherKeys, sequence: u64) -> Result<Self, SessionError> {
        RecordKey::new(keys, sequence).map(Self)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.0.budget.verdict()
    }

    /// Opens a whole record in place: its content type, and where its plaintext lies in `record`.
    pub(crate) fn open_in_place(
        &mut self,
        record: &mut [u8],
    ) -> Result<(ContentType, core::ops::Range<usize>), SessionError> {
        let (header, body) = check_header(record)?;
        let inner = self
            .0
            .key
            .open_in_place(self.0.nonce()?, Aad::from(header), body)
            .map_err(|_| SessionError::BadRecord)?;
        let (content, len) = inner_plaintext(inner)?;
        self.on_opened(len);
        Ok((content, HEADER_LEN..HEADER_LEN + len))
    }

    /// Opens a whole record into `out`, which must hold the plaintext and one byte more for each
    /// of content type and padding; `None` if it does not.
    pub(crate) fn open_into(
        &mut self,
        record: &mut [u8],
        out: &mut [u8],
    ) -> Result<Option<(ContentType, usize)>, SessionError> {
        let (header, body) = check_header(record)?;
        let (sealed, tag) = body.split_at(body.len() - TAG_LEN);
        let Some(out) = out.get_mut(..sealed.len()) else {
            return Ok(None);
        };
        self.0
            .key
            .open_separate_gather(self.0.nonce()?, Aad::from(header), sealed, tag, out)
            .map_err(|_| SessionError::BadRecord)?;
        let (content, len) = inner_plaintext(out)?;
        self.on_opened(len);
        Ok(Some((content, len)))
    }

    fn on_opened(&mut self, len: usize) {
        self.0.sequence += 1;
        self.0.budget.charge(len);
    }

    #[cfg(test)]
    pub(crate) fn spend(&mut self, blocks: u64) {
        self.0.budget.spend(blocks);
    }
}

fn check_header(record: &mut [u8]) -> Result<([u8; HEADER_LEN], &mut [u8]), SessionError> {
    let Some((header, body)) = record.split_first_chunk_mut::<HEADER_LEN>() else {
        return Err(SessionError::BadRecord);
    };
    let header = *header;
    // After the handshake every record is encrypted, and looks like application data.
    if header[0] != u8::from(ContentType::ApplicationData) {
        return Err(SessionError::peer(
            "a record in clear after the handshake",
            AlertDescription::UnexpectedMessage,
        ));
    }
    if body.len() <= TAG_LEN {
        return Err(SessionError::BadRecord);
    }
    Ok((header, body))
}

/// Splits TLSInnerPlaintext: the content type is the last byte that is not zero (RFC 8446 §5.4).
fn inner_plaintext(inner: &[u8]) -> Result<(ContentType, usize), SessionError> {
    let Some(at) = inner.iter().rposition(|byte| *byte != 0) else {
        return Err(SessionError::peer(
            "a record without a content type",
            AlertDescription::UnexpectedMessage,
        ));
    };
    if at > MAX_PLAINTEXT {
        return Err(SessionError::peer(
            "a record with more than 2^14 bytes",
            AlertDescription::RecordOverflow,
        ));
    }
    Ok((ContentType::from(inner[at]), at))
}
