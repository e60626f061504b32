//! The decoder (RFC 9204 §2.2): the peer's instructions build the table, sections refer to it.

use std::collections::BTreeMap;

use bytes::Bytes;
use towline_wire::qpack::{
    DecoderInstruction, EncoderInstruction, FieldLine, QpackError, SectionPrefix, StringLiteral,
    static_entry,
};
use towline_wire::{Reader, StreamId};

use super::table::{Entry, Table, max_entries, size};
use super::{Error, MAX_UNSENT_INSTRUCTIONS};

/// Cap: what an instruction of the peer's encoder may take besides four times the table's capacity,
/// which is more than an entry of that size can need in the Huffman code.
pub(super) const MAX_INSTRUCTION_OVERHEAD: usize = 64;

/// What became of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Decoded {
    /// All fields were handed out.
    Done,
    /// Entries that it needs have not arrived: decode it again when
    /// [`Decoder::take_unblocked`] names its stream. No field was handed out.
    Blocked,
    /// It is larger than permitted; not all of its fields were handed out. The decoder has read it
    /// all the same, and goes on.
    TooLarge,
}

/// Decodes the field sections of one connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    max_capacity: u64,
    max_blocked: u64,
    /// The begin of an instruction whose end has not arrived.
    partial: Vec<u8>,
    /// Streams with a section that waits, and the insert count it needs.
    blocked: BTreeMap<StreamId, u64>,
    /// The insert count that the peer knows we have (RFC 9204 §2.1.4).
    told: u64,
    out: Vec<u8>,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// A decoder that permits the peer a table of so many bytes and so many blocked streams, as our
    /// SETTINGS say (RFC 9204 §5).
    pub fn new(max_capacity: u64, max_blocked: u64) -> Self {
        Self {
            table: Table::default(),
            max_capacity,
            max_blocked,
            partial: Vec::new(),
            blocked: BTreeMap::new(),
            told: 0,
            out: Vec::new(),
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The next bytes of the peer's encoder stream (RFC 9204 §4.3). Afterwards ask
    /// [`take_unblocked`](Self::take_unblocked).
    ///
    /// # Errors
    /// QPACK_ENCODER_STREAM_ERROR for an instruction that can't be carried out.
    pub fn handle_encoder_stream(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut held = core::mem::take(&mut self.partial);
        if held.is_empty() {
            let read = self.instructions(bytes)?;
            self.partial.extend_from_slice(&bytes[read..]);
        } else {
            held.extend_from_slice(bytes);
            let read = self.instructions(&held)?;
            held.drain(..read);
            self.partial = held;
        }
        let capacity = usize::try_from(self.max_capacity).unwrap_or(usize::MAX);
        let cap = capacity
            .saturating_mul(4)
            .saturating_add(MAX_INSTRUCTION_OVERHEAD);
        if self.partial.len() > cap {
            return Err(Error::encoder_stream("an entry is larger than the table"));
        }
        Ok(())
    }

    /// Carries out the whole instructions in `bytes`; returns how many bytes those were.
    fn instructions(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut r = Reader::new(bytes);
        loop {
            match EncoderInstruction::parse(&mut r) {
                Ok(instruction) => self.instruction(&instruction)?,
                Err(QpackError::Truncated) => return Ok(r.position()),
                Err(_) => return Err(Error::encoder_stream("an instruction can't be read")),
            }
        }
    }

    fn instruction(&mut self, instruction: &EncoderInstruction<'_>) -> Result<(), Error> {
        const MISSING: Error = Error::encoder_stream("a reference to an entry that is not there");
        let entry = match *instruction {
            EncoderInstruction::SetCapacity(capacity) => {
                if capacity > self.max_capacity {
                    return Err(Error::encoder_stream("more capacity than permitted"));
                }
                self.table.set_capacity(capacity);
                return Ok(());
            }
            EncoderInstruction::InsertStaticName { index, value } => {
                let (name, _) = static_entry(index).ok_or(MISSING)?;
                let value = self.entry_text(value)?;
                Entry::new(name, value)
            }
            EncoderInstruction::InsertDynamicName { relative, value } => {
                let named = self.table.newest_but(relative).ok_or(MISSING)?.clone();
                let value = self.entry_text(value)?;
                Entry::new(named.name(), value)
            }
            EncoderInstruction::InsertLiteralName { name, value } => {
                let name = self.entry_text(name)?.to_vec();
                let value = self.entry_text(value)?;
                Entry::new(&name, value)
            }
            EncoderInstruction::Duplicate(relative) => {
                self.table.newest_but(relative).ok_or(MISSING)?.clone()
            }
        };
        if !self.table.insert(entry) {
            return Err(Error::encoder_stream("an entry is larger than the table"));
        }
        Ok(())
    }

    /// A string of an instruction, which has to fit into the table.
    fn entry_text(&mut self, literal: StringLiteral<'_>) -> Result<&[u8], Error> {
        if literal.min_len() as u64 > self.table.capacity() {
            return Err(Error::encoder_stream("an entry is larger than the table"));
        }
        self.value.clear();
        literal
            .decode(&mut self.value)
            .map_err(|_| Error::encoder_stream("a string's Huffman code is invalid"))?;
        Ok(&self.value)
    }

    /// Decodes the section of a HEADERS frame, and hands out its fields in order. Its fields count
    /// together at most `max_size`: names, values and 32 for each (RFC 9114 §4.2.2).
    ///
    /// Names and values are bytes as they came: whether they may be in a message is not looked at.
    ///
    /// # Errors
    /// QPACK_DECOMPRESSION_FAILED for a section that can't be decoded, or one that makes more
    /// streams wait than we permit; H3_EXCESSIVE_LOAD where the peer sends sections and takes no
    /// instructions.
    pub fn decode(
        &mut self,
        stream: StreamId,
        section: &[u8],
        max_size: usize,
        field: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Decoded, Error> {
        self.check_unsent()?;
        let mut r = Reader::new(section);
        let prefix = SectionPrefix::parse(&mut r).map_err(failed)?;
        let frame = self.frame(&prefix)?;
        if frame.required > self.table.insert_count() {
            return self.block(stream, frame.required);
        }
        self.blocked.remove(&stream);
        let mut left = max_size as u64;
        let mut fits = true;
        while !r.is_empty() {
            let line = FieldLine::parse(&mut r).map_err(failed)?;
            let (name, value) = self.line(&line, frame)?;
            match left.checked_sub(size(name, value)) {
                Some(rest) if fits => {
                    left = rest;
                    field(name, value);
                }
                _ => fits = false,
            }
        }
        if frame.required > 0 {
            DecoderInstruction::SectionAcknowledgment(stream).emit(&mut self.out);
            self.told = self.told.max(frame.required);
        }
        Ok(if fits {
            Decoded::Done
        } else {
            Decoded::TooLarge
        })
    }

    fn block(&mut self, stream: StreamId, required: u64) -> Result<Decoded, Error> {
        let waits = self.blocked.contains_key(&stream);
        if !waits && self.blocked.len() as u64 >= self.max_blocked {
            return Err(Error::decompression("more blocked streams than permitted"));
        }
        self.blocked.insert(stream, required);
        Ok(Decoded::Blocked)
    }

    /// Required Insert Count and Base (RFC 9204 §4.5.1).
    fn frame(&self, prefix: &SectionPrefix) -> Result<Frame, Error> {
        const INVALID: Error = Error::decompression("an insert count or a base that can't be");
        let required = self
            .required_insert_count(prefix.encoded_insert_count)
            .ok_or(INVALID)?;
        let base = if prefix.negative {
            required
                .checked_sub(prefix.delta_base)
                .and_then(|base| base.checked_sub(1))
        } else {
            required.checked_add(prefix.delta_base)
        };
        let base = base.ok_or(INVALID)?;
        Ok(Frame { required, base })
    }

    /// RFC 9204 §4.5.1.1.
    fn required_insert_count(&self, encoded: u64) -> Option<u64> {
        let max_entries = max_entries(self.max_capacity);
        let full_range = 2 * max_entries;
        if encoded == 0 {
            return Some(0);
        }
        if encoded > full_range {
            return None;
        }
        let max_value = self.table.insert_count() + max_entries;
        let wrapped = max_value / full_range * full_range;
        let required = wrapped + encoded - 1;
        let required = if required > max_value {
            required.checked_sub(full_range)?
        } else {
            required
        };
        (required > 0).then_some(required)
    }

    /// Name and value of one field line.
    fn line<'a>(
        &'a mut self,
        line: &FieldLine<'_>,
        frame: Frame,
    ) -> Result<(&'a [u8], &'a [u8]), Error> {
        const MISSING: Error = Error::decompression("a reference to an entry that is not there");
        let name_from_table = |entry: Option<u64>| {
            let entry = entry.and_then(|absolute| self.table.get(absolute));
            entry.ok_or(MISSING)
        };
        match *line {
            FieldLine::IndexedStatic(index) => static_entry(index).ok_or(MISSING),
            FieldLine::IndexedDynamic(relative) => {
                let entry = name_from_table(frame.relative(relative))?;
                Ok((entry.name(), entry.value()))
            }
            FieldLine::IndexedPostBase(post_base) => {
                let entry = name_from_table(frame.post_base(post_base))?;
                Ok((entry.name(), entry.value()))
            }
            FieldLine::StaticName { index, value, .. } => {
                let (name, _) = static_entry(index).ok_or(MISSING)?;
                Ok((name, text(&mut self.value, value)?))
            }
            FieldLine::DynamicName {
                relative, value, ..
            } => {
                let entry = name_from_table(frame.relative(relative))?;
                Ok((entry.name(), text(&mut self.value, value)?))
            }
            FieldLine::PostBaseName {
                post_base, value, ..
            } => {
                let entry = name_from_table(frame.post_base(post_base))?;
                Ok((entry.name(), text(&mut self.value, value)?))
            }
            FieldLine::Literal { name, value, .. } => {
                let name = text(&mut self.name, name)?;
                Ok((name, text(&mut self.value, value)?))
            }
        }
    }

    /// Bytes of memory that the peer's instructions and sections make it hold.
    pub fn held(&self) -> usize {
        let texts = self.name.capacity() + self.value.capacity();
        let blocked = self.blocked.len() * size_of::<(StreamId, u64)>();
        self.table.held() + self.partial.capacity() + self.out.capacity() + texts + blocked
    }

    /// A stream whose section was blocked and can be decoded now.
    pub fn take_unblocked(&mut self) -> Option<StreamId> {
        let count = self.table.insert_count();
        let mut waiting = self.blocked.iter();
        let (&stream, _) = waiting.find(|(_, required)| **required <= count)?;
        self.blocked.remove(&stream);
        Some(stream)
    }

    /// No section of this stream will be decoded any more: it was reset, or its reading given up
    /// (RFC 9204 §2.2.2.2). Call it once for such a stream.
    pub fn cancel(&mut self, stream: StreamId) {
        self.blocked.remove(&stream);
        if self.max_capacity > 0 {
            DecoderInstruction::StreamCancellation(stream).emit(&mut self.out);
        }
    }

    /// Whether the peer takes the instructions that it causes, cancellations among them.
    ///
    /// # Errors
    /// H3_EXCESSIVE_LOAD where too much of them waits.
    pub fn check_unsent(&self) -> Result<(), Error> {
        match self.out.len() > MAX_UNSENT_INSTRUCTIONS {
            true => Err(Error::load("the peer takes no instructions of the decoder")),
            false => Ok(()),
        }
    }

    /// What is to be sent on our decoder stream, if anything (RFC 9204 §4.4).
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        let increment = self.table.insert_count() - self.told;
        if increment > 0 {
            DecoderInstruction::InsertCountIncrement(increment).emit(&mut self.out);
            self.told += increment;
        }
        (!self.out.is_empty()).then(|| core::mem::take(&mut self.out).into())
    }
}

/// What the indices of one section count from.
#[derive(Clone, Copy)]
struct Frame {
    required: u64,
    base: u64,
}

impl Frame {
    /// RFC 9204 §3.2.5.
    fn relative(self, index: u64) -> Option<u64> {
        self.promised(self.base.checked_sub(index)?.checked_sub(1)?)
    }

    /// RFC 9204 §3.2.6.
    fn post_base(self, index: u64) -> Option<u64> {
        self.promised(self.base.checked_add(index)?)
    }

    /// No section may refer to more than it says it needs (RFC 9204 §2.2.1).
    fn promised(self, absolute: u64) -> Option<u64> {
        (absolute < self.required).then_some(absolute)
    }
}

fn text<'a>(scratch: &'a mut Vec<u8>, literal: StringLiteral<'_>) -> Result<&'a [u8], Error> {
    scratch.clear();
    literal.decode(scratch).map_err(failed)?;
    Ok(scratch)
}

fn failed(error: QpackError) -> Error {
    Error::decompression(match error {
        QpackError::Truncated => "a field section ends early",
        QpackError::IntegerTooLarge => "an integer in a field section is above 2^62 - 1",
        QpackError::Huffman => "a string's Huffman code is invalid",
    })
}
