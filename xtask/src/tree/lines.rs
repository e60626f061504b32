//! Where a piece of syntax stands in its file.

use proc_macro2::Span;

/// The 1-based line where this begins.
pub(super) fn line(span: Span) -> usize {
    span.start().line
}
