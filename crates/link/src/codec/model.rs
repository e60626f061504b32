//! [`Model`]: what comes next in a record, and what it costs.
//!
//! A record that is like an earlier one in all but its numbers and times is coded as that, its
//! [`Template`], and its numbers. Any other is walked value by value. A value's *slot* is where it stands:
//! the keys above it. What a slot has is guessed from what it had in such a place before, and from what this
//! record has said so far; a right guess costs a fraction of a bit. Nothing is known of Signal K but what is
//! learned.
//!
//! Writing, reading and learning are one walk with another [`Coder`], so that they can't differ.

use std::collections::HashMap;
use std::sync::Arc;

use super::coder::{Blank, Coder, Reader, Writer};
use super::layout::{
    GUESS_BITS, GUESSES, KIND_BEFORE, LAST_COUNT, LAST_KIND, LAST_TEMPLATE, LAST_TIME,
    TEMPLATE_BEFORE, WORDS,
};
use super::memory::{Changes, TEMPLATE_BITS};
use super::mixer::{Contexts, hash};
use super::record::{Keys, Node, Record, Text};
use super::symbols::{Kind, Symbols};
use super::template::{self, Leaf, Template};
use super::walk::{Room, Tape, Walk};
use super::{Corrupt, time};

/// Cap: values, bytes of text, and records of a batch that the model takes: what one message may cost.
pub(super) const MAX_BATCH_NODES: usize = 1 << 14;
pub(super) const MAX_BATCH_TEXT: usize = 1 << 17;
pub(super) const MAX_RECORDS: usize = 1 << 12;

/// Guesses that are tried before a value, or a template, is said.
const TRIES: usize = 3;

/// A guess has a type and, above these bits, a text or a length.
const TYPE_BITS: u32 = 4;
const TYPE_MASK: u32 = (1 << TYPE_BITS) - 1;
/// What has no place in a guess: a text that is too long for a name, an array that is.
const NO_ARGUMENT: u32 = (1 << 27) - 1;

/// Lists of keys that are kept apart from the memory.
const MAX_KEPT_KEYS: usize = 1 << 10;
/// The elements of an array from this one on are alike: a pair has two slots, a long list few.
const ALIKE_FROM: u32 = 4;

/// What was learned, and how it is used.
#[derive(Debug)]
pub(super) struct Model {
    symbols: Symbols,
    /// Lists of keys by the hashes of their texts, so that each is taken apart once.
    keys: HashMap<u32, Arc<Keys>>,
}

impl Model {
    /// A model that knows nothing.
    pub(super) fn new() -> Self {
        Self {
            symbols: Symbols::new(WORDS),
            keys: HashMap::new(),
        }
    }

    /// Whether a batch is none of those that cost too much here.
    pub(super) fn takes(records: &[Record]) -> bool {
        let sizes = records.iter().map(Record::size);
        let (nodes, text) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        nodes <= MAX_BATCH_NODES && text <= MAX_BATCH_TEXT && records.len() <= MAX_RECORDS
    }

    /// Appends a batch that is [taken](Self::takes), coded; nothing is learned.
    pub(super) fn write(&mut self, records: &[Record], out: &mut Vec<u8>) {
        let start = out.len();
        let mut writer = Writer::new(out);
        self.put(&mut writer, records);
        writer.finish(start);
        self.symbols.memory.roll_back();
    }

    /// What [`write`](Self::write) was given; nothing is learned.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Record>, Corrupt> {
        let mut reader = Reader::new(bytes);
        let records = self.get(&mut reader);
        self.symbols.memory.roll_back();
        let records = records?;
        match reader.has_rest() {
            true => Err(Corrupt::Rest),
            false => Ok(records),
        }
    }

    /// Learns a batch for good; what this changed.
    pub(super) fn learn(&mut self, records: &[Record]) -> Changes {
        self.put(&mut Blank, records);
        self.symbols.memory.take_changes()
    }

    /// Takes back what was learned last.
    pub(super) fn undo(&mut self, changes: &mut Changes) {
        self.symbols.memory.undo(changes);
    }

    /// Learns again what was taken back last.
    pub(super) fn redo(&mut self, changes: &mut Changes) {
        self.symbols.memory.redo(changes);
    }

    fn put(&mut self, coder: &mut impl Coder, records: &[Record]) {
        self.count(coder, records.len() as u32);
        for record in records {
            let room = Room { nodes: 0, text: 0 };
            let walked = self.record(coder, &mut Tape::new(&record.nodes, room));
            debug_assert_eq!(walked, Ok(()), "what is told is sound");
        }
    }

    fn get(&mut self, reader: &mut Reader<'_>) -> Result<Vec<Record>, Corrupt> {
        let count = self.count(reader, 0) as usize;
        if count > MAX_RECORDS {
            return Err(Corrupt::TooMuch);
        }
        let mut records = Vec::new();
        let mut room = Room {
            nodes: MAX_BATCH_NODES,
            text: MAX_BATCH_TEXT,
        };
        for _ in 0..count {
            let mut tape = Tape::new(&[], room);
            self.record(reader, &mut tape)?;
            if reader.is_past_end() {
                return Err(Corrupt::Short);
            }
            room = tape.room;
            records.push(Record {
                nodes: tape.found.into(),
            });
        }
        Ok(records)
    }

    fn count(&mut self, coder: &mut impl Coder, count: u32) -> u32 {
        let last = self.symbols.memory.get(LAST_COUNT);
        let contexts = [last, 1 << 31, 1 << 31];
        let count = self
            .symbols
            .whole(coder, Kind::Count, &contexts, count.into()) as u32;
        self.symbols.memory.set(LAST_COUNT, count);
        count
    }

    fn record<C: Coder>(&mut self, coder: &mut C, tape: &mut Tape<'_>) -> Result<(), Corrupt> {
        let memory = &self.symbols.memory;
        let kinds = (memory.get(LAST_KIND), memory.get(KIND_BEFORE));
        let mut walk = Walk::new(kinds, memory.get_i64(LAST_TIME));
        let before = (memory.get(LAST_TEMPLATE), memory.get(TEMPLATE_BEFORE));
        let places = [
            hash(hash(before.0, before.1), 7),
            hash(before.0, 8),
            hash(hash(walk.kinds.0, walk.kinds.1), 9),
        ];
        let id = match self.template(coder, &walk, before.0, &places, tape) {
            Some(id) => {
                let template = self.symbols.memory.template(id);
                let template = Arc::clone(template.ok_or(Corrupt::Name)?);
                self.fill(coder, tape, &mut walk, &template)?;
                Some(id)
            }
            None => {
                self.value(coder, tape, &mut walk, 1)?;
                if !matches!(tape.nodes().first(), Some(Node::Object(_))) {
                    return Err(Corrupt::NoObject);
                }
                let leaves = std::mem::take(&mut tape.leaves);
                let template = Template::new(tape.nodes(), leaves, walk.last_text);
                template.map(|template| self.symbols.memory.learn_template(template))
            }
        };
        if let Some(id) = id {
            self.learn_guess(&places, id);
        }
        let memory = &mut self.symbols.memory;
        memory.set(TEMPLATE_BEFORE, before.0);
        memory.set(LAST_TEMPLATE, id.map_or(0, |id| id + 1));
        memory.set(KIND_BEFORE, walk.kinds.0);
        memory.set(LAST_KIND, walk.last_text);
        Ok(())
    }

    /// Which template the record has: one of those that came after such records, another, or none.
    fn template<C: Coder>(
        &mut self,
        coder: &mut C,
        walk: &Walk,
        before: u32,
        places: &[u32; TRIES],
        tape: &Tape<'_>,
    ) -> Option<u32> {
        let memory = &self.symbols.memory;
        let told = match C::READS {
            true => None,
            false => memory.template_of(template::sum_of(tape.told)),
        };
        let told = told.filter(|id| {
            let template = memory.template(*id);
            template.is_some_and(|template| template.fits(tape.told))
        });
        let mut tried = [0; TRIES];
        for (index, place) in places.iter().enumerate() {
            let guess = self.symbols.memory.get(guess_at(*place));
            if guess == 0 || tried.contains(&guess) {
                continue;
            }
            tried[index] = guess;
            let contexts = [places[0], places[2], guess];
            let kind = (Kind::TemplateGuess, index as u32);
            if self
                .symbols
                .bit(coder, kind, &contexts, told == Some(guess - 1))
            {
                return Some(guess - 1);
            }
        }
        let (last, kind_before) = walk.kinds;
        let contexts = [hash(last, kind_before), before, 0];
        let is_known = self
            .symbols
            .bit(coder, (Kind::KnownTemplate, 0), &contexts, told.is_some());
        is_known.then(|| {
            let told = told.unwrap_or_default();
            self.symbols
                .tree(coder, Kind::Template, TEMPLATE_BITS, &contexts, told)
        })
    }

    /// The numbers and times of a record whose template is known.
    fn fill<C: Coder>(
        &mut self,
        coder: &mut C,
        tape: &mut Tape<'_>,
        walk: &mut Walk,
        template: &Template,
    ) -> Result<(), Corrupt> {
        if C::READS {
            tape.room.take(template.nodes.len(), 0)?;
            tape.found.extend_from_slice(&template.nodes);
        }
        for leaf in &template.leaves {
            walk.texts = leaf.texts;
            walk.last_text = leaf.last_text;
            let at = leaf.at as usize;
            let told = tape.told.get(at).unwrap_or(&template.nodes[at]);
            let node = self.number(coder, walk, leaf.slot, told)?;
            if C::READS {
                tape.found[at] = node;
            }
        }
        walk.last_text = template.kind;
        Ok(())
    }

    /// A number or a time; of one that is found out, `told` is the type.
    fn number<C: Coder>(
        &mut self,
        coder: &mut C,
        walk: &mut Walk,
        slot: u32,
        told: &Node,
    ) -> Result<Node, Corrupt> {
        let (node, is_sound) = match told {
            Node::Int(told) => (Node::Int(self.symbols.int(coder, walk, slot, *told)), true),
            Node::Double(told) => {
                let bits = self.symbols.double(coder, walk, slot, *told);
                (Node::Double(bits), f64::from_bits(bits).is_finite())
            }
            Node::Time(told) => {
                let millis = self.symbols.time(coder, walk, slot, *told);
                (Node::Time(millis), time::is_written(millis))
            }
            other => (other.clone(), true),
        };
        match is_sound {
            true => Ok(node),
            false => Err(Corrupt::Number),
        }
    }

    /// One value, with those inside it.
    fn value<C: Coder>(
        &mut self,
        coder: &mut C,
        tape: &mut Tape<'_>,
        walk: &mut Walk,
        slot: u32,
    ) -> Result<(), Corrupt> {
        let at = tape.position();
        let told = tape.next();
        let found = self.sort(coder, walk, slot, told, tape.room.text)?;
        match &found {
            Node::Null | Node::Bool(_) => tape.put(found),
            Node::Int(_) | Node::Double(_) | Node::Time(_) => {
                tape.leaves.push(Leaf {
                    at: at as u32,
                    slot,
                    texts: walk.texts,
                    last_text: walk.last_text,
                });
                let node = self.number(coder, walk, slot, told.unwrap_or(&found))?;
                if let Node::Int(value) = node {
                    walk.said = hash(walk.said, value as u32);
                }
                tape.put(node)
            }
            Node::Text(text) => {
                walk.said = hash(walk.said, text.hash);
                walk.texts = hash(walk.texts, text.hash);
                walk.last_text = hash(slot, text.hash);
                tape.put(found)
            }
            Node::Digits(digits) => {
                if C::READS && !is_large_integer(&digits.text) {
                    return Err(Corrupt::Number);
                }
                tape.put(found)
            }
            Node::Array(len) => {
                let len = *len;
                tape.put(found)?;
                walk.enter()?;
                for index in 0..len {
                    let slot = hash(slot, 0x5eed + index.min(ALIKE_FROM));
                    self.value(coder, tape, walk, slot)?;
                }
                walk.leave();
                Ok(())
            }
            Node::Object(keys) => {
                let keys = Arc::clone(keys);
                tape.put(found)?;
                walk.enter()?;
                let slot = hash(slot, keys.text.hash);
                for index in 0..keys.names.len() {
                    self.value(coder, tape, walk, hash(slot, index as u32))?;
                }
                walk.leave();
                Ok(())
            }
        }
    }

    /// A value, all but its number: a guess, or its type and what belongs to that.
    fn sort<C: Coder>(
        &mut self,
        coder: &mut C,
        walk: &Walk,
        slot: u32,
        told: Option<&Node>,
        room: usize,
    ) -> Result<Node, Corrupt> {
        let said = hash(slot, walk.said);
        let after = hash(slot, walk.kinds.0);
        let places = [hash(said, walk.kinds.0), slot, said];
        let contexts = [places[0], said, slot];
        if let Some(guess) = self.guess(coder, slot, &places, &contexts, told) {
            return self.value_of(guess);
        }
        let contexts = [said, after, slot];
        let kind = told.map_or(0, Node::kind);
        let kind = self
            .symbols
            .tree(coder, Kind::Type, TYPE_BITS, &contexts, kind);
        let (argument, node) = match kind {
            Node::ARRAY => {
                let len = match told {
                    Some(Node::Array(len)) => *len,
                    _ => 0,
                };
                let len = self
                    .symbols
                    .whole(coder, Kind::ArrayLen, &contexts, len.into());
                let len = u32::try_from(len).map_err(|_| Corrupt::TooMuch)?;
                (len.min(NO_ARGUMENT), Node::Array(len))
            }
            Node::OBJECT | Node::TEXT | Node::DIGITS => {
                let told = told.and_then(Node::text);
                let last = self.symbols.memory.get(guess_at(slot));
                let contexts = [hash(slot, last), after, slot];
                let text = self.text(coder, hash(slot, kind), &contexts, told, room)?;
                let id = self.symbols.memory.id(&text);
                let node = match kind {
                    Node::OBJECT => Node::Object(self.keys_of(&text)?),
                    Node::TEXT => Node::Text(text),
                    _ => Node::Digits(text),
                };
                (id.map_or(NO_ARGUMENT, |id| id + 1), node)
            }
            _ => (0, self.value_of(kind)?),
        };
        if argument != NO_ARGUMENT {
            self.learn_guess(&places, kind | argument << TYPE_BITS);
        }
        Ok(node)
    }

    /// The value of a guess; numbers and times are 0.
    fn value_of(&mut self, guess: u32) -> Result<Node, Corrupt> {
        let argument = guess >> TYPE_BITS;
        Ok(match guess & TYPE_MASK {
            Node::NULL => Node::Null,
            Node::FALSE => Node::Bool(false),
            Node::TRUE => Node::Bool(true),
            Node::INT => Node::Int(0),
            Node::DOUBLE => Node::Double(0),
            Node::TIME => Node::Time(0),
            Node::ARRAY => Node::Array(argument),
            kind @ (Node::TEXT | Node::DIGITS | Node::OBJECT) => {
                let name = self.symbols.memory.name(argument.wrapping_sub(1));
                let name = name.ok_or(Corrupt::Name)?.clone();
                match kind {
                    Node::TEXT => Node::Text(name),
                    Node::DIGITS => Node::Digits(name),
                    _ => Node::Object(self.keys_of(&name)?),
                }
            }
            _ => return Err(Corrupt::Name),
        })
    }

    /// Whether a guess is this very value.
    fn is(&self, guess: u32, node: &Node) -> bool {
        let argument = guess >> TYPE_BITS;
        guess & TYPE_MASK == node.kind()
            && match node {
                Node::Array(len) => argument == *len,
                _ => node.text().is_none_or(|text| {
                    self.symbols.memory.name(argument.wrapping_sub(1)) == Some(text)
                }),
            }
    }

    fn keys_of(&mut self, text: &Text) -> Result<Arc<Keys>, Corrupt> {
        if let Some(keys) = self.keys.get(&text.hash)
            && keys.text == *text
        {
            return Ok(Arc::clone(keys));
        }
        let keys = Arc::new(Keys::parse(text).ok_or(Corrupt::Name)?);
        if self.keys.len() == MAX_KEPT_KEYS {
            self.keys.clear();
        }
        self.keys.insert(text.hash, Arc::clone(&keys));
        Ok(keys)
    }

    /// Tries what stands in these places, one after the other; nothing is tried twice.
    fn guess(
        &mut self,
        coder: &mut impl Coder,
        slot: u32,
        places: &[u32; TRIES],
        contexts: &Contexts,
        told: Option<&Node>,
    ) -> Option<u32> {
        let history = GUESSES + (hash(slot, 99) >> (32 - GUESS_BITS));
        let past = self.symbols.memory.get(history);
        let mut contexts = *contexts;
        contexts[2] = hash(slot, past & 0x3f);
        let mut tried = [0; TRIES];
        let mut hit = None;
        let mut came = TRIES as u32;
        for (index, place) in places.iter().enumerate() {
            let guess = self.symbols.memory.get(guess_at(*place));
            if guess == 0 || tried.contains(&guess) {
                continue;
            }
            tried[index] = guess;
            let is_right = told.is_some_and(|node| self.is(guess - 1, node));
            let kind = (Kind::Guess, index as u32);
            if self.symbols.bit(coder, kind, &contexts, is_right) {
                hit = Some(guess - 1);
                came = index as u32;
                break;
            }
        }
        let now = (past << 2 | came) & 0xff;
        if now != past {
            self.symbols.memory.set(history, now);
        }
        let guess = hit?;
        self.learn_guess(places, guess);
        Some(guess)
    }

    fn learn_guess(&mut self, places: &[u32], guess: u32) {
        let memory = &mut self.symbols.memory;
        for place in places {
            let at = guess_at(*place);
            if memory.get(at) != guess + 1 {
                memory.set(at, guess + 1);
            }
        }
    }

    /// A text: one that has an ID, or letter by letter.
    fn text<C: Coder>(
        &mut self,
        coder: &mut C,
        slot: u32,
        contexts: &Contexts,
        told: Option<&Text>,
        room: usize,
    ) -> Result<Text, Corrupt> {
        let told_id = told.and_then(|text| self.symbols.memory.id(text));
        let kind = (Kind::KnownName, 0);
        if self.symbols.bit(coder, kind, contexts, told_id.is_some()) {
            let bits = self.symbols.memory.name_bits();
            let id = told_id.unwrap_or_default();
            let id = self.symbols.tree(coder, Kind::Name, bits, contexts, id);
            return self.symbols.memory.name(id).cloned().ok_or(Corrupt::Name);
        }
        let text = self.letters(coder, slot, told, room)?;
        self.symbols.memory.learn_name(&text);
        Ok(text)
    }

    fn letters<C: Coder>(
        &mut self,
        coder: &mut C,
        slot: u32,
        told: Option<&Text>,
        room: usize,
    ) -> Result<Text, Corrupt> {
        let bytes = told.map_or(&[][..], |text| text.text.as_bytes());
        let contexts = [slot, 0, 0];
        let len = self
            .symbols
            .whole(coder, Kind::Len, &contexts, bytes.len() as u64);
        let len = usize::try_from(len).map_err(|_| Corrupt::TooMuch)?;
        if C::READS && len > room {
            return Err(Corrupt::TooMuch);
        }
        let mut found = Vec::new();
        let mut before = 0u32;
        for index in 0..len {
            let contexts = [
                hash(before & 0x00ff_ffff, 1),
                hash(before & 0xffff, slot),
                hash(before & 0xff, 2),
            ];
            let told = bytes.get(index).copied().unwrap_or_default();
            let byte = self
                .symbols
                .tree(coder, Kind::Letter, u8::BITS, &contexts, told.into())
                as u8;
            before = before << 8 | u32::from(byte);
            if C::READS {
                found.push(byte);
            }
        }
        match told {
            Some(text) => Ok(text.clone()),
            None => String::from_utf8(found)
                .map(Text::new)
                .map_err(|_| Corrupt::Name),
        }
    }
}

fn guess_at(place: u32) -> u32 {
    GUESSES + (hash(place, 3) >> (32 - GUESS_BITS))
}

/// Whether it is an integer that has no place in 64 bits, in the one spelling that JSON has for it.
fn is_large_integer(digits: &str) -> bool {
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    let all = plain.bytes().all(|byte| byte.is_ascii_digit());
    all && !plain.starts_with('0') && !plain.is_empty() && digits.parse::<i64>().is_err()
}

#[cfg(test)]
mod tests;
