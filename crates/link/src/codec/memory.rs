//! [`Memory`]: all that a model has learned, as words and names, with a journal that undoes.
//!
//! A batch is coded against a memory that both ends have. What is learned while it is coded is taken back
//! afterwards, and learned for good once the batch is known to have arrived. The journal makes both cheap:
//! it has the old value of each word that was changed.

use std::collections::HashMap;
use std::sync::Arc;

use super::record::Text;
use super::template::Template;

/// Cap: names that are kept; the oldest makes room.
const MAX_NAMES: u32 = 1 << 13;

/// Cap: bytes of a name. A text that is longer is coded letter by letter each time.
pub(super) const MAX_NAME_LEN: usize = 512;

pub(super) const TEMPLATE_BITS: u32 = 12;
/// Cap: templates that are kept; the oldest makes room.
const MAX_TEMPLATES: u32 = 1 << TEMPLATE_BITS;

/// Changes since a point in time, which can be taken back and made again.
#[derive(Debug, Default)]
pub(super) struct Changes {
    words: Vec<(u32, u32)>,
    names: Vec<(u32, Option<Text>)>,
    templates: Vec<(u32, Option<Arc<Template>>)>,
}

impl Changes {
    /// Bytes that this takes.
    pub(super) fn size(&self) -> usize {
        let named = self.names.len() + self.templates.len();
        self.words.len() * size_of::<(u32, u32)>() + named * 2 * MAX_NAME_LEN
    }
}

/// What was learned.
#[derive(Debug)]
pub(super) struct Memory {
    words: Vec<u32>,
    names: Vec<Option<Text>>,
    ids: HashMap<Arc<str>, u32>,
    next_name: u32,
    templates: Vec<Option<Arc<Template>>>,
    by_sum: HashMap<u64, u32>,
    changes: Changes,
}

impl Memory {
    /// Nothing learned, and so many words, all 0.
    pub(super) fn new(words: usize) -> Self {
        Self {
            // The last words are `next_name` and the next template's.
            words: vec![0; words + 2],
            names: Vec::new(),
            ids: HashMap::new(),
            next_name: words as u32,
            templates: Vec::new(),
            by_sum: HashMap::new(),
            changes: Changes::default(),
        }
    }

    pub(super) fn get(&self, at: u32) -> u32 {
        self.words[at as usize]
    }

    pub(super) fn set(&mut self, at: u32, value: u32) {
        let word = &mut self.words[at as usize];
        self.changes.words.push((at, *word));
        *word = value;
    }

    /// Gives some words new values.
    pub(super) fn change<const N: usize>(
        &mut self,
        words: [u32; N],
        value: impl Fn(usize, u32) -> u32,
    ) {
        let before = words.map(|at| (at, self.words[at as usize]));
        self.changes.words.extend_from_slice(&before);
        for (index, (at, before)) in before.into_iter().enumerate() {
            self.words[at as usize] = value(index, before);
        }
    }

    pub(super) fn get_i64(&self, at: u32) -> i64 {
        (u64::from(self.get(at)) | u64::from(self.get(at + 1)) << 32) as i64
    }

    pub(super) fn set_i64(&mut self, at: u32, value: i64) {
        self.set(at, value as u32);
        self.set(at + 1, (value as u64 >> 32) as u32);
    }

    pub(super) fn name(&self, id: u32) -> Option<&Text> {
        self.names.get(id as usize)?.as_ref()
    }

    pub(super) fn id(&self, name: &Text) -> Option<u32> {
        self.ids.get(&name.text).copied()
    }

    /// So many IDs have been given out at least; those above have no name.
    pub(super) fn name_bits(&self) -> u32 {
        u32::BITS - (self.names.len() as u32).leading_zeros()
    }

    /// Gives a name an ID. One that has an ID keeps it.
    pub(super) fn learn_name(&mut self, name: &Text) -> Option<u32> {
        if name.text.len() > MAX_NAME_LEN {
            return None;
        }
        if let Some(id) = self.id(name) {
            return Some(id);
        }
        let id = self.get(self.next_name);
        self.set(self.next_name, (id + 1) % MAX_NAMES);
        let old = self.put_name(id, Some(name.clone()));
        self.changes.names.push((id, old));
        Some(id)
    }

    fn put_name(&mut self, id: u32, name: Option<Text>) -> Option<Text> {
        let at = id as usize;
        if at >= self.names.len() {
            self.names.resize(at + 1, None);
        }
        let old = std::mem::replace(&mut self.names[at], name.clone());
        if let Some(old) = &old
            && self.ids.get(&old.text) == Some(&id)
        {
            self.ids.remove(&old.text);
        }
        if let Some(name) = name {
            self.ids.insert(name.text, id);
        }
        // The number of names is a part of what both ends agree on.
        while let Some(None) = self.names.last() {
            self.names.pop();
        }
        old
    }

    pub(super) fn template(&self, id: u32) -> Option<&Arc<Template>> {
        self.templates.get(id as usize)?.as_ref()
    }

    /// The template that a record's sum leads to; another record may have the same sum.
    pub(super) fn template_of(&self, sum: u64) -> Option<u32> {
        self.by_sum.get(&sum).copied()
    }

    /// Gives a template an ID, unless one with its sum has one.
    pub(super) fn learn_template(&mut self, template: Arc<Template>) -> u32 {
        if let Some(id) = self.template_of(template.sum) {
            return id;
        }
        let next = self.next_name + 1;
        let id = self.get(next);
        self.set(next, (id + 1) % MAX_TEMPLATES);
        let old = self.put_template(id, Some(template));
        self.changes.templates.push((id, old));
        id
    }

    fn put_template(&mut self, id: u32, template: Option<Arc<Template>>) -> Option<Arc<Template>> {
        let at = id as usize;
        if at >= self.templates.len() {
            self.templates.resize(at + 1, None);
        }
        let sum = template.as_ref().map(|template| template.sum);
        let old = std::mem::replace(&mut self.templates[at], template);
        if let Some(old) = &old
            && self.by_sum.get(&old.sum) == Some(&id)
        {
            self.by_sum.remove(&old.sum);
        }
        if let Some(sum) = sum {
            self.by_sum.insert(sum, id);
        }
        old
    }

    /// What changed since this was called last.
    pub(super) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Takes back what changed since [`take_changes`](Self::take_changes).
    pub(super) fn roll_back(&mut self) {
        let mut changes = self.take_changes();
        self.undo(&mut changes);
        // Room that is used again by the next batch.
        changes.words.clear();
        changes.names.clear();
        changes.templates.clear();
        self.changes = changes;
    }

    /// Takes these changes back, which are the last ones made; afterwards they can be made again.
    pub(super) fn undo(&mut self, changes: &mut Changes) {
        for (id, name) in changes.names.iter_mut().rev() {
            *name = self.put_name(*id, name.take());
        }
        for (id, template) in changes.templates.iter_mut().rev() {
            *template = self.put_template(*id, template.take());
        }
        for (at, value) in changes.words.iter_mut().rev() {
            std::mem::swap(&mut self.words[*at as usize], value);
        }
    }

    /// Makes these changes again, which were taken back.
    pub(super) fn redo(&mut self, changes: &mut Changes) {
        for (at, value) in &mut changes.words {
            std::mem::swap(&mut self.words[*at as usize], value);
        }
        for (id, name) in &mut changes.names {
            *name = self.put_name(*id, name.take());
        }
        for (id, template) in &mut changes.templates {
            *template = self.put_template(*id, template.take());
        }
    }
}
