//! Counts lines, functions, fields and calls in parsed files; `house` compares with the marks.
//!
//! A line of code holds a token that ships: blank lines, comments, doc comments and what only
//! tests compile do not count. A function is as long as it looks, from `fn` to its last brace.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::tree::{SourceFile, Tree, line, lines_of};

/// What a file that is long on purpose says at its top.
pub(super) const FILE_REASON: &str = "One file because";
/// What a function that is long on purpose says above it or inside it.
pub(super) const FUNCTION_REASON: &str = "One function because";

/// How large a type is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) fields: usize,
    /// Functions of its own `impl`s, without those of traits.
    pub(super) methods: usize,
    pub(super) public: usize,
    /// Files that hold these `impl`s.
    pub(super) files: usize,
}

/// A file with more lines than it should have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Large {
    pub(super) path: String,
    pub(super) lines: usize,
    pub(super) code: usize,
    pub(super) says_why: bool,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) path: String,
    pub(super) line: usize,
    /// With its type: `Connection::handle`.
    pub(super) name: String,
    pub(super) lines: usize,
    pub(super) says_why: bool,
}

/// Calls that panic, and the code they stand in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Panics {
    pub(super) unwraps: usize,
    pub(super) expects: usize,
    pub(super) code: usize,
}

/// The files of a crate's targets, each once: a program may include one of the library's.
pub(super) fn files(trees: &[Tree]) -> Vec<&SourceFile> {
    let mut seen = BTreeSet::new();
    trees
        .iter()
        .flat_map(|tree| &tree.files)
        .filter(|file| seen.insert(&file.path))
        .collect()
}

/// The size of the crate's one struct of this name.
pub(super) fn size(tree: &Tree, name: &str) -> Option<Size> {
    let (definition, syntax) = tree.find_struct(name)?;
    let mut size = Size {
        fields: syntax.fields.len(),
        methods: 0,
        public: 0,
        files: 0,
    };
    let mut files = BTreeSet::new();
    for found in tree.impls() {
        if found.of != definition || found.syntax.trait_.is_some() {
            continue;
        }
        files.insert(found.file);
        for item in &found.syntax.items {
            if let syn::ImplItem::Fn(item) = item {
                size.methods += 1;
                size.public += usize::from(matches!(item.vis, syn::Visibility::Public(_)));
            }
        }
    }
    size.files = files.len();
    Some(size)
}

/// Lines of code that ship.
pub(super) fn code_lines(file: &SourceFile) -> usize {
    let mut lines = BTreeSet::new();
    if let Ok(tokens) = file.text.parse::<TokenStream>() {
        let text: Vec<&str> = file.text.lines().collect();
        mark(tokens, &text, &mut lines);
    }
    let left_out = |line: &usize| {
        file.left_out
            .iter()
            .any(|(first, last)| (first..=last).contains(&line))
    };
    lines.iter().filter(|line| !left_out(line)).count()
}

fn mark(tokens: TokenStream, text: &[&str], lines: &mut BTreeSet<usize>) {
    let mut add = |span: Span| lines.extend(span.start().line..=span.end().line);
    let mut nested = Vec::new();
    for token in tokens {
        // A doc comment comes as the tokens of `#[doc = "…"]`, all with the comment's place.
        if is_comment(token.span(), text) {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                if group.delimiter() != Delimiter::None {
                    add(group.span_open());
                    add(group.span_close());
                }
                nested.push(group.stream());
            }
            token => add(token.span()),
        }
    }
    for tokens in nested {
        mark(tokens, text, lines);
    }
}

fn is_comment(span: Span, text: &[&str]) -> bool {
    let start = span.start();
    text.get(start.line.saturating_sub(1)).is_some_and(|line| {
        let rest: String = line.chars().skip(start.column).take(2).collect();
        rest == "//" || rest == "/*"
    })
}

/// The file, if it has more lines than `mark`.
pub(super) fn large(file: &SourceFile, code: usize, mark: usize) -> Option<Large> {
    let lines = file.text.lines().count();
    (lines > mark).then(|| Large {
        path: file.path.clone(),
        lines,
        code,
        says_why: file
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .any(|line| line.contains(FILE_REASON)),
    })
}

/// All functions of the file.
pub(super) fn functions(file: &SourceFile) -> Vec<Function> {
    let mut reader = Functions {
        file,
        owner: None,
        found: Vec::new(),
    };
    reader.visit_file(&file.syntax);
    reader.found
}

struct Functions<'a> {
    file: &'a SourceFile,
    owner: Option<String>,
    found: Vec<Function>,
}

impl Functions<'_> {
    /// `first` is the line of its attributes and doc comments.
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block, first: usize) {
        let start = lines_of(signature).0;
        let end = body.brace_token.span.close().end().line;
        let own = signature.ident.to_string();
        self.found.push(Function {
            path: self.file.path.clone(),
            line: line(signature.fn_token.span),
            name: match &self.owner {
                Some(owner) => format!("{owner}::{own}"),
                None => own,
            },
            lines: end + 1 - start,
            says_why: says_why(&self.file.text, first, end),
        });
    }

    fn within(&mut self, owner: String, read: impl FnOnce(&mut Self)) {
        let outer = self.owner.replace(owner);
        read(self);
        self.owner = outer;
    }
}

/// Whether a comment in these lines, or right above them, gives the reason.
fn says_why(text: &str, first: usize, last: usize) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let above = lines[..first.saturating_sub(1)]
        .iter()
        .rev()
        .take_while(|line| line.trim_start().starts_with("//"));
    let inside = &lines[first.saturating_sub(1)..last.min(lines.len())];
    above.chain(inside).any(|line| {
        line.trim_start()
            .strip_prefix("//")
            .is_some_and(|comment| comment.contains(FUNCTION_REASON))
    })
}

impl<'a> Visit<'a> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig, &item.block, lines_of(item).0);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig, &item.block, lines_of(item).0);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.sig, body, lines_of(item).0);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(named) => named
                .path
                .segments
                .last()
                .map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(owner.unwrap_or_else(|| "impl".to_owned()), |reader| {
            visit::visit_item_impl(reader, item);
        });
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.within(item.ident.to_string(), |reader| {
            visit::visit_item_trait(reader, item);
        });
    }
}

impl Panics {
    /// Counts a file with so many lines of code.
    pub(super) fn add(&mut self, code: usize, syntax: &syn::File) {
        self.code += code;
        self.visit_file(syntax);
    }

    /// Calls in a thousand lines of code.
    pub(super) fn per_thousand(&self) -> f64 {
        1000.0 * (self.unwraps + self.expects) as f64 / self.code.max(1) as f64
    }

    /// `says` tells whether a string stands among the arguments: a parser's own `expect(tag)`
    /// does not panic.
    fn call(&mut self, method: &str, says: bool) {
        match method {
            "unwrap" | "unwrap_err" => self.unwraps += 1,
            "expect" | "expect_err" if says => self.expects += 1,
            _ => {}
        }
    }

    /// `.unwrap()` among the arguments of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(name) if at > 0 => {
                    let after_dot =
                        matches!(&tokens[at - 1], TokenTree::Punct(dot) if dot.as_char() == '.');
                    if let (true, Some(TokenTree::Group(arguments))) =
                        (after_dot, tokens.get(at + 1))
                    {
                        self.call(&name.to_string(), has_string(arguments.stream()));
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether an expression holds a string, or a macro that may make one.
struct Strings(bool);

impl<'a> Visit<'a> for Strings {
    fn visit_lit_str(&mut self, _: &'a syn::LitStr) {
        self.0 = true;
    }

    fn visit_macro(&mut self, _: &'a syn::Macro) {
        self.0 = true;
    }
}

fn has_string(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => has_string(group.stream()),
        TokenTree::Literal(literal) => literal.to_string().contains('"'),
        _ => false,
    })
}

impl<'a> Visit<'a> for Panics {
    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        let mut strings = Strings(false);
        for argument in &call.args {
            strings.visit_expr(argument);
        }
        let says = strings.0;
        self.call(&call.method.to_string(), says);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}
}
