//! Where a piece of syntax stands in its file.

use proc_macro2::Span;
use syn::spanned::Spanned;

/// The 1-based line where this begins.
pub(crate) fn line(span: Span) -> usize {
    span.start().line
}

/// First and last line of a piece of syntax, its attributes and doc comments included.
pub(crate) fn lines_of(syntax: &impl Spanned) -> (usize, usize) {
    let span = syntax.span();
    (span.start().line, span.end().line)
}
