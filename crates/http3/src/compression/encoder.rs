//! The encoder (RFC 9204 §2.1): which fields go into the table, and when a section may refer to it.
//!
//! A field goes into the table unless its value seldom repeats. A reference to an entry that the
//! peer has not acknowledged may make the stream wait there; so many streams as the peer permits
//! take that risk, the others spell the field out. No entry is evicted that a section which is not
//! acknowledged refers to, nor one whose insertion is not acknowledged.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use towline_wire::qpack::{
    DecoderInstruction, EncoderInstruction, FieldLine, QpackError, SectionPrefix, StaticMatch,
    find_static,
};
use towline_wire::{Reader, StreamId};

use super::table::{Entry, Match, Table, max_entries, size};
use super::{Error, MAX_UNSENT_INSTRUCTIONS, Sensitivity};

/// Cap: bytes of the table that the encoder uses, however many the peer permits. It bounds what is
/// searched for each field, too.
pub(super) const MAX_CAPACITY: u64 = 4096;

/// Cap: sections with references that the peer has not acknowledged. With more of them no section
/// refers to the table.
pub(super) const MAX_UNACKNOWLEDGED: usize = 1024;

/// Fields whose values seldom come twice.
const CHANGING: &[&[u8]] = &[
    b":path",
    b"age",
    b"content-length",
    b"content-range",
    b"date",
    b"etag",
    b"if-modified-since",
    b"if-none-match",
    b"last-modified",
    b"link",
    b"location",
    b"range",
    b"set-cookie",
];

/// A secret in one of these that is shorter could be guessed from how well it is compressed
/// (RFC 9204 §7.1).
const SECRETS: &[&[u8]] = &[b"authorization", b"cookie", b"proxy-authorization"];
const MIN_SECRET: usize = 20;

/// A section with references, until the peer acknowledges it.
#[derive(Clone, Copy, Debug)]
struct Unacknowledged {
    required: u64,
    lowest: u64,
}

/// Encodes the field sections of one connection.
#[derive(Default, Debug)]
pub struct Encoder {
    table: Table,
    /// What the peer permits, which the encoding of insert counts depends on.
    peer_capacity: u64,
    max_blocked: u64,
    /// Insertions that the peer has acknowledged (RFC 9204 §2.1.4).
    known: u64,
    unacknowledged: BTreeMap<StreamId, VecDeque<Unacknowledged>>,
    unacknowledged_sections: usize,
    /// The lowest reference of each unacknowledged section, and how many have it.
    lowest: BTreeMap<u64, usize>,
    /// Streams that may wait at the peer, and the insert count they need.
    blocking: BTreeMap<StreamId, u64>,
    partial: Vec<u8>,
    out: Vec<u8>,
    lines: Vec<u8>,
}

impl Encoder {
    /// An encoder without a dynamic table, until the peer's SETTINGS permit one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of memory that the table and what the peer has not acknowledged take.
    pub fn held(&self) -> usize {
        let section = size_of::<Unacknowledged>() + size_of::<(u64, usize)>();
        let buffers = self.partial.capacity() + self.out.capacity() + self.lines.capacity();
        self.table.held() + self.unacknowledged_sections * section + buffers
    }

    /// The peer's SETTINGS permit a table of `capacity` bytes and so many blocked streams
    /// (RFC 9204 §5). Call it once.
    pub fn set_peer_limits(&mut self, capacity: u64, blocked: u64) {
        self.peer_capacity = capacity;
        self.max_blocked = blocked;
        let used = capacity.min(MAX_CAPACITY);
        if used > 0 {
            self.table.set_capacity(used);
            EncoderInstruction::emit_set_capacity(&mut self.out, used);
        }
    }

    /// Appends a field section to `out`. Send it on `stream`, and what
    /// [`take_instructions`](Self::take_instructions) has soon: the peer may need it first.
    pub fn encode<'a>(
        &mut self,
        stream: StreamId,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8], Sensitivity)>,
        out: &mut Vec<u8>,
    ) {
        let mut section = Section {
            base: self.table.insert_count(),
            required: 0,
            lowest: None,
            may_refer: self.unacknowledged_sections < MAX_UNACKNOWLEDGED,
            may_block: self.blocking.contains_key(&stream)
                || (self.blocking.len() as u64) < self.max_blocked,
        };
        let mut lines = core::mem::take(&mut self.lines);
        for (name, value, sensitivity) in fields {
            self.line(name, value, sensitivity, &mut section, &mut lines);
        }
        self.prefix(&section).emit(out);
        out.extend_from_slice(&lines);
        lines.clear();
        self.lines = lines;
        if let Some(lowest) = section.lowest {
            self.remember(stream, section.required, lowest);
        }
    }

    fn prefix(&self, section: &Section) -> SectionPrefix {
        if section.required == 0 {
            return SectionPrefix {
                encoded_insert_count: 0,
                negative: false,
                delta_base: 0,
            };
        }
        let full_range = 2 * max_entries(self.peer_capacity);
        let negative = section.required > section.base;
        SectionPrefix {
            encoded_insert_count: section.required % full_range + 1,
            negative,
            delta_base: if negative {
                section.required - section.base - 1
            } else {
                section.base - section.required
            },
        }
    }

    fn remember(&mut self, stream: StreamId, required: u64, lowest: u64) {
        let sections = self.unacknowledged.entry(stream).or_default();
        sections.push_back(Unacknowledged { required, lowest });
        self.unacknowledged_sections += 1;
        *self.lowest.entry(lowest).or_default() += 1;
        if required > self.known {
            let most = self.blocking.entry(stream).or_default();
            *most = required.max(*most);
        }
    }

    fn line(
        &mut self,
        name: &[u8],
        value: &[u8],
        sensitivity: Sensitivity,
        section: &mut Section,
        lines: &mut Vec<u8>,
    ) {
        let in_static = find_static(name, value);
        if sensitivity == Sensitivity::Never {
            return spell_out(name, value, in_static, true, lines);
        }
        if let Some(StaticMatch::Whole(index)) = in_static {
            return FieldLine::emit_indexed_static(lines, index);
        }
        let found = self.table.find(name, value);
        let indexed = match found {
            Some(Match::Whole(absolute)) => Some(self.renewed(absolute, section)),
            _ => self.inserted(name, value, in_static, found, section),
        };
        if let Some(absolute) = indexed.filter(|absolute| self.may_use(*absolute, section)) {
            section.refer(absolute);
            return match section.base.checked_sub(absolute + 1) {
                Some(relative) => FieldLine::emit_indexed_dynamic(lines, relative),
                None => FieldLine::emit_indexed_post_base(lines, absolute - section.base),
            };
        }
        match found {
            Some(Match::Name(absolute) | Match::Whole(absolute))
                if !matches!(in_static, Some(StaticMatch::Name(_)))
                    && self.table.get(absolute).is_some()
                    && self.may_use(absolute, section) =>
            {
                section.refer(absolute);
                match section.base.checked_sub(absolute + 1) {
                    Some(relative) => FieldLine::emit_dynamic_name(lines, relative, value, false),
                    None => {
                        let post_base = absolute - section.base;
                        FieldLine::emit_post_base_name(lines, post_base, value, false);
                    }
                }
            }
            _ => spell_out(name, value, in_static, false, lines),
        }
    }

    /// Whether the section may refer to an entry: the peer has it, or the stream may wait for it.
    fn may_use(&self, absolute: u64, section: &Section) -> bool {
        section.may_refer && (absolute < self.known || section.may_block)
    }

    /// An entry that would be among the next to go is inserted anew, so that references to the old
    /// one end and do not keep the table from changing (RFC 9204 §2.1.1.1).
    fn renewed(&mut self, absolute: u64, section: &Section) -> u64 {
        let soon = self.table.first_kept(self.table.capacity() / 4);
        if absolute >= soon || !section.may_refer || !section.may_block {
            return absolute;
        }
        let Some(entry) = self.table.get(absolute).cloned() else {
            return absolute;
        };
        if !self.may_insert(size(entry.name(), entry.value()), section) {
            return absolute;
        }
        let renewed = self.table.insert_count();
        EncoderInstruction::emit_duplicate(&mut self.out, renewed - 1 - absolute);
        self.table.insert(entry);
        renewed
    }

    /// Inserts a field that is likely to come again, if there is room; returns its absolute index.
    fn inserted(
        &mut self,
        name: &[u8],
        value: &[u8],
        in_static: Option<StaticMatch>,
        found: Option<Match>,
        section: &Section,
    ) -> Option<u64> {
        let size = size(name, value);
        let small = size <= self.table.capacity() / 2;
        if !small || !repeats(name, value) || !self.may_insert(size, section) {
            return None;
        }
        let absolute = self.table.insert_count();
        let out = &mut self.out;
        match (in_static, found) {
            (Some(StaticMatch::Name(index)), _) => {
                EncoderInstruction::emit_insert_static_name(out, index, value);
            }
            (_, Some(Match::Name(named))) => {
                EncoderInstruction::emit_insert_dynamic_name(out, absolute - 1 - named, value);
            }
            _ => EncoderInstruction::emit_insert_literal_name(out, name, value),
        }
        self.table.insert(Entry::new(name, value));
        Some(absolute)
    }

    /// Whether an entry of this size can be inserted now, and nothing goes that is still needed.
    fn may_insert(&self, size: u64, section: &Section) -> bool {
        let mut keep = self.known;
        if let Some((lowest, _)) = self.lowest.first_key_value() {
            keep = keep.min(*lowest);
        }
        if let Some(lowest) = section.lowest {
            keep = keep.min(lowest);
        }
        self.out.len() < MAX_UNSENT_INSTRUCTIONS && self.table.has_room(size, keep)
    }

    /// What is to be sent on our encoder stream, if anything (RFC 9204 §4.3).
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        (!self.out.is_empty()).then(|| core::mem::take(&mut self.out).into())
    }

    /// The next bytes of the peer's decoder stream (RFC 9204 §4.4).
    ///
    /// # Errors
    /// QPACK_DECODER_STREAM_ERROR for an instruction that can't be.
    pub fn handle_decoder_stream(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut held = core::mem::take(&mut self.partial);
        held.extend_from_slice(bytes);
        let mut r = Reader::new(&held);
        loop {
            match DecoderInstruction::parse(&mut r) {
                Ok(instruction) => self.instruction(instruction)?,
                Err(QpackError::Truncated) => break,
                Err(_) => return Err(Error::decoder_stream("an instruction can't be read")),
            }
        }
        // The begin of one instruction, which is an integer: no more than a few bytes.
        self.partial.extend_from_slice(r.as_slice());
        Ok(())
    }

    fn instruction(&mut self, instruction: DecoderInstruction) -> Result<(), Error> {
        match instruction {
            DecoderInstruction::SectionAcknowledgment(stream) => {
                let sections = self.unacknowledged.get_mut(&stream);
                let Some(section) = sections.and_then(VecDeque::pop_front) else {
                    let what = "the peer acknowledges a section that was not sent";
                    return Err(Error::decoder_stream(what));
                };
                self.release(section);
                if self
                    .unacknowledged
                    .get(&stream)
                    .is_some_and(VecDeque::is_empty)
                {
                    self.unacknowledged.remove(&stream);
                }
                self.know(section.required.max(self.known));
            }
            DecoderInstruction::StreamCancellation(stream) => {
                for section in self.unacknowledged.remove(&stream).unwrap_or_default() {
                    self.release(section);
                }
                self.blocking.remove(&stream);
            }
            DecoderInstruction::InsertCountIncrement(increment) => {
                let count = self.known + increment;
                if increment == 0 || count > self.table.insert_count() {
                    let what = "the peer acknowledges insertions that were not sent";
                    return Err(Error::decoder_stream(what));
                }
                self.know(count);
            }
        }
        Ok(())
    }

    /// Whether no section waits for an acknowledgment, and no stream for the peer.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.unacknowledged_sections == 0
            && self.unacknowledged.is_empty()
            && self.lowest.is_empty()
            && self.blocking.is_empty()
    }

    fn release(&mut self, section: Unacknowledged) {
        self.unacknowledged_sections -= 1;
        if let Some(count) = self.lowest.get_mut(&section.lowest) {
            *count -= 1;
            if *count == 0 {
                self.lowest.remove(&section.lowest);
            }
        }
    }

    fn know(&mut self, count: u64) {
        if count > self.known {
            self.known = count;
            self.blocking.retain(|_, required| *required > count);
        }
    }
}

/// A section that is being encoded.
struct Section {
    base: u64,
    required: u64,
    lowest: Option<u64>,
    may_refer: bool,
    may_block: bool,
}

impl Section {
    fn refer(&mut self, absolute: u64) {
        self.required = self.required.max(absolute + 1);
        self.lowest = Some(self.lowest.map_or(absolute, |lowest| lowest.min(absolute)));
    }
}

/// Whether a field is worth its place in the table.
fn repeats(name: &[u8], value: &[u8]) -> bool {
    let short_secret = value.len() < MIN_SECRET && SECRETS.contains(&name);
    !short_secret && !CHANGING.contains(&name)
}

/// A line without the dynamic table.
fn spell_out(
    name: &[u8],
    value: &[u8],
    in_static: Option<StaticMatch>,
    never_indexed: bool,
    lines: &mut Vec<u8>,
) {
    match in_static {
        Some(StaticMatch::Name(index) | StaticMatch::Whole(index)) => {
            FieldLine::emit_static_name(lines, index, value, never_indexed);
        }
        None => FieldLine::emit_literal(lines, name, value, never_indexed),
    }
}
