//! Where what lies in the memory's words.

use super::mixer;

/// What came last in a place: 1 more than a template or a value.
pub(super) const GUESSES: u32 = mixer::WORDS;
pub(super) const GUESS_BITS: u32 = 13;
/// The numbers of a place.
pub(super) const COLUMNS: u32 = GUESSES + (1 << GUESS_BITS);
pub(super) const COLUMN_BITS: u32 = 11;
pub(super) const COLUMN_LEN: u32 = 8;
const SINGLES: u32 = COLUMNS + (COLUMN_LEN << COLUMN_BITS);
pub(super) const LAST_TIME: u32 = SINGLES;
pub(super) const LAST_KIND: u32 = SINGLES + 2;
pub(super) const KIND_BEFORE: u32 = SINGLES + 3;
pub(super) const LAST_COUNT: u32 = SINGLES + 4;
pub(super) const LAST_TEMPLATE: u32 = SINGLES + 5;
pub(super) const TEMPLATE_BEFORE: u32 = SINGLES + 6;
pub(super) const WORDS: u32 = SINGLES + 7;
