//! Which file of a crate uses which other, and at which line.
//!
//! A use is a path in the code that leads to what another file defines, wherever `use` and
//! re-exports take it on its way; a `use` itself counts only for a trait or a glob of variants,
//! which nothing need name again, so a parent that only re-exports a child does not use it. So is
//! a call of `self.method()` or `Self::method()` whose `impl` lies in another file. Unseen are
//! methods of other receivers, names that macros make, and patterns that are a lone constant.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Item, Visibility};

use super::imports::{Import, leaves};
use super::lines::line;
use super::modules::{Definition, Place, Tree, Wanted};

/// Names of inherent functions and constants, by type, and the files of the `impl`s that hold them.
type Methods = BTreeMap<(Definition, String), BTreeSet<usize>>;

/// One file's use of another, by their index in `Tree::files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
    /// The path or call as written.
    pub(crate) what: String,
}

/// A path that starts with `crate`, `self` or `super`, made absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) file: usize,
    /// The module that writes it, from the crate's root.
    pub(crate) module: Vec<String>,
    /// As it is written, from the crate's root; a glob ends in `*`.
    pub(crate) segments: Vec<String>,
    /// Where it leads, through re-exports: the module, and the name that is defined there. As written
    /// where that is not known.
    pub(crate) place: Vec<String>,
    pub(crate) line: usize,
}

/// A path that leads out of the crate, without a leading `::`; a glob ends in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) file: usize,
    pub(crate) line: usize,
    pub(crate) path: Vec<String>,
}

/// Everything that a crate's files name.
#[derive(Default)]
pub(crate) struct Uses {
    /// In the order of the files and their lines.
    pub(crate) between_files: Vec<Use>,
    pub(crate) named: Vec<NamedPath>,
    pub(crate) outside: Vec<Outside>,
    /// First segments of those.
    pub(crate) foreign: BTreeSet<String>,
}

/// An `impl` block of a type of this crate.
pub(crate) struct Impl<'a> {
    pub(crate) of: Definition,
    pub(crate) file: usize,
    pub(crate) line: usize,
    pub(crate) syntax: &'a syn::ItemImpl,
}

impl Uses {
    /// Reads all files of the tree.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut methods = Methods::new();
        for found in tree.impls() {
            if found.syntax.trait_.is_some() {
                continue;
            }
            for item in &found.syntax.items {
                let name = match item {
                    syn::ImplItem::Fn(item) => item.sig.ident.to_string(),
                    syn::ImplItem::Const(item) => item.ident.to_string(),
                    _ => continue,
                };
                let files = methods.entry((found.of.clone(), name)).or_default();
                files.insert(found.file);
            }
        }
        let mut reader = Reader {
            tree,
            methods: &methods,
            file: 0,
            module: 0,
            self_type: None,
            found: Self::default(),
        };
        for (index, file) in tree.files.iter().enumerate() {
            reader.file = index;
            reader.module = file.module;
            reader.visit_file(&file.syntax);
        }
        reader.found
    }
}

impl Tree {
    /// Every `impl` of a type that this crate defines, of traits too.
    pub(crate) fn impls(&self) -> Vec<Impl<'_>> {
        let mut found = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            self.impls_among(file.module, index, &file.syntax.items, &mut found);
        }
        found
    }

    fn impls_among<'a>(
        &'a self,
        module: usize,
        file: usize,
        items: &'a [Item],
        found: &mut Vec<Impl<'a>>,
    ) {
        for item in items {
            match item {
                Item::Impl(syntax) => {
                    if let Some(of) = self.definition_of(module, &syntax.self_ty) {
                        found.push(Impl {
                            of,
                            file,
                            line: line(syntax.impl_token.span),
                            syntax,
                        });
                    }
                }
                Item::Mod(item) => {
                    if let (Some((_, items)), Some(child)) =
                        (&item.content, self.child(module, &item.ident.to_string()))
                    {
                        self.impls_among(child, file, items, found);
                    }
                }
                _ => {}
            }
        }
    }

    fn definition_of(&self, module: usize, written: &syn::Type) -> Option<Definition> {
        let syn::Type::Path(written) = written else {
            return None;
        };
        match self.resolve(module, &segments(&written.path), Wanted::Item)? {
            Place::Item(definition, 0) => Some(definition),
            _ => None,
        }
    }

    /// `path`, written in `module`, from the crate's root; `None` if it starts elsewhere.
    fn absolute(&self, module: usize, path: &[String]) -> Option<Vec<String>> {
        let mut found = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.segments_of(module),
            _ => return None,
        };
        for segment in path {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => {
                    found.pop();
                }
                _ => found.push(segment.clone()),
            }
        }
        Some(found)
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    let mut found: Vec<String> = path
        .segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect();
    if path.leading_colon.is_some() {
        found.insert(0, String::new());
    }
    found
}

struct Reader<'a> {
    tree: &'a Tree,
    methods: &'a Methods,
    file: usize,
    module: usize,
    /// The type of the `impl` that is being read.
    self_type: Option<Definition>,
    found: Uses,
}

impl Reader<'_> {
    fn path(&mut self, path: &[String], line: usize, wanted: Wanted) {
        if let (Some("Self"), Some(name)) = (path.first().map(String::as_str), path.get(1)) {
            return self.own_method(&name.clone(), line);
        }
        let place = self.tree.resolve(self.module, path, wanted);
        if path.len() > 1 {
            self.named(path, place.as_ref(), line);
        }
        match place {
            Some(Place::Item(definition, rest)) => {
                let to = self.tree.file_of(&definition);
                self.arrow(to, line, &path.join("::"));
                if let Some(name) = path.get(path.len() - rest) {
                    self.method(definition, name, line, &path.join("::"));
                }
            }
            Some(Place::Module(_)) => {}
            // A lone name is a local variable, a generic or the language's.
            None if path.len() > 1 => self.outside(path, line),
            None => {}
        }
    }

    fn named(&mut self, written: &[String], place: Option<&Place>, line: usize) {
        let Some(segments) = self.tree.absolute(self.module, written) else {
            return;
        };
        let mut place = match place {
            Some(Place::Item(definition, _)) => {
                let mut place = self.tree.segments_of(definition.module);
                place.push(definition.name.clone());
                place
            }
            Some(Place::Module(module)) => self.tree.segments_of(*module),
            None => segments.clone(),
        };
        if written.last().is_some_and(|last| last == "*") && place.last() != segments.last() {
            place.push("*".to_owned());
        }
        self.found.named.push(NamedPath {
            file: self.file,
            module: self.tree.segments_of(self.module),
            segments,
            place,
            line,
        });
    }

    fn outside(&mut self, path: &[String], line: usize) {
        let named = path.iter().filter(|segment| !segment.is_empty());
        let path: Vec<String> = named.cloned().collect();
        self.found.foreign.extend(path.first().cloned());
        self.found.outside.push(Outside {
            file: self.file,
            line,
            path,
        });
    }

    fn own_method(&mut self, name: &str, line: usize) {
        if let Some(own) = self.self_type.clone() {
            self.method(own, name, line, &format!("self.{name}()"));
        }
    }

    fn method(&mut self, of: Definition, name: &str, line: usize, what: &str) {
        let files = self.methods.get(&(of, name.to_owned()));
        // One of several `impl`s in this very file is the nearest.
        if let Some(files) = files.filter(|files| !files.contains(&self.file)) {
            for to in files {
                self.arrow(*to, line, what);
            }
        }
    }

    fn arrow(&mut self, to: usize, line: usize, what: &str) {
        if to != self.file {
            self.found.between_files.push(Use {
                from: self.file,
                to,
                line,
                what: what.to_owned(),
            });
        }
    }

    fn import(&mut self, import: &Import) {
        let mut written = import.path.clone();
        if import.name.is_none() {
            written.push("*".to_owned());
        }
        let place = self
            .tree
            .resolve(self.module, &import.path, Wanted::Anything);
        self.named(&written, place.as_ref(), import.line);
        match place {
            Some(Place::Item(definition, rest)) => {
                let own = &self.tree.modules[definition.module];
                let is_trait = rest == 0 && own.items.get(&definition.name) == Some(&true);
                if (is_trait && !import.public) || import.name.is_none() {
                    let to = self.tree.file_of(&definition);
                    self.arrow(to, import.line, &written.join("::"));
                }
            }
            Some(Place::Module(_)) => {}
            None => self.outside(&written, import.line),
        }
    }

    /// Paths in tokens that no grammar is known for: the arguments of somebody's macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(_) => {
                    let (path, next) = path_at(&tokens, at);
                    let here = line(tokens[at].span());
                    let after_dot = at > 0 && is_punct(&tokens[at - 1], '.');
                    let own = path == ["self"] && calls_method(&tokens, next);
                    if own && let Some(TokenTree::Ident(name)) = tokens.get(next + 1) {
                        self.own_method(&name.to_string(), here);
                    } else if !after_dot {
                        self.path(&path, here, Wanted::Item);
                    }
                    at = next;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// The path that starts with the name at `at`, and the index after it.
fn path_at(tokens: &[TokenTree], at: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    let mut next = at;
    while let Some(TokenTree::Ident(name)) = tokens.get(next) {
        path.push(name.to_string());
        next += 1;
        let separated = tokens.get(next).is_some_and(|token| is_punct(token, ':'))
            && tokens
                .get(next + 1)
                .is_some_and(|token| is_punct(token, ':'));
        let goes_on = matches!(tokens.get(next + 2), Some(TokenTree::Ident(_)));
        if !separated || !goes_on {
            break;
        }
        next += 2;
    }
    (path, next)
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// Whether `.name(…)` stands at `at`.
fn calls_method(tokens: &[TokenTree], at: usize) -> bool {
    matches!(
        (tokens.get(at), tokens.get(at + 1), tokens.get(at + 2)),
        (Some(dot), Some(TokenTree::Ident(_)), Some(TokenTree::Group(group)))
            if is_punct(dot, '.') && group.delimiter() == Delimiter::Parenthesis
    )
}

impl<'a> Visit<'a> for Reader<'_> {
    // Neither names code: `derive`, lints, and how far an item can be seen.
    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        let child = self.tree.child(self.module, &item.ident.to_string());
        if let (Some((_, items)), Some(child)) = (&item.content, child) {
            let outer = std::mem::replace(&mut self.module, child);
            for item in items {
                self.visit_item(item);
            }
            self.module = outer;
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        for import in leaves(item) {
            self.import(&import);
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'a syn::ItemExternCrate) {
        self.found.foreign.insert(item.ident.to_string());
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let own = self.tree.definition_of(self.module, &item.self_ty);
        let outer = std::mem::replace(&mut self.self_type, own);
        visit::visit_item_impl(self, item);
        self.self_type = outer;
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if let Some(first) = path.segments.first() {
            self.path(&segments(path), line(first.ident.span()), Wanted::Anything);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_path(&mut self, expression: &'a syn::ExprPath) {
        let path = &expression.path;
        match path.segments.first() {
            Some(only) if path.segments.len() == 1 && expression.qself.is_none() => {
                self.path(&segments(path), line(only.ident.span()), Wanted::Item);
                visit::visit_path(self, path);
            }
            _ => visit::visit_expr_path(self, expression),
        }
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if let syn::Expr::Path(receiver) = &*call.receiver
            && receiver.path.is_ident("self")
        {
            self.own_method(&call.method.to_string(), line(call.method.span()));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        if call.path.segments.len() > 1 {
            self.visit_path(&call.path);
        }
        let parser = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        match syn::parse::Parser::parse2(parser, call.tokens.clone()) {
            Ok(arguments) => {
                for argument in &arguments {
                    Visit::visit_expr(self, argument);
                }
            }
            Err(_) => self.tokens(call.tokens.clone()),
        }
    }
}
