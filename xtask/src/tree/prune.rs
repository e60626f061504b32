//! Takes out of a file what only tests and fuzzers compile, and remembers which lines that was.
//!
//! `Tree` calls it for what ships. A `cfg` counts by what it says: `test` and `fuzzing` do, `all`
//! does when one of its parts does, `any` when all of them do; `not` and features never do.

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, ImplItem, Item, Meta, Stmt, TraitItem};

use super::lines::lines_of;

/// Removes everything that only tests have; the line ranges that this left out.
pub(super) fn prune(file: &mut syn::File) -> Vec<(usize, usize)> {
    let mut pruner = Pruner {
        left_out: Vec::new(),
    };
    pruner.visit_file_mut(file);
    pruner.left_out.sort_unstable();
    pruner.left_out
}

/// Whether these attributes keep an item out of what ships.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => says_test(&list.tokens),
        meta => meta.path().is_ident("test") || meta.path().is_ident("bench"),
    })
}

/// Whether a `cfg` predicate holds in test and fuzz builds alone.
fn says_test(predicate: &TokenStream) -> bool {
    let Ok(parts) = syn::parse::Parser::parse2(
        Punctuated::<Meta, syn::Token![,]>::parse_terminated,
        predicate.clone(),
    ) else {
        return false;
    };
    // `cfg` itself has one part.
    parts.iter().any(|part| match part {
        Meta::Path(path) => path.is_ident("test") || path.is_ident("fuzzing"),
        Meta::List(list) if list.path.is_ident("all") => says_test(&list.tokens),
        Meta::List(list) if list.path.is_ident("any") => {
            each_part(&list.tokens).iter().all(says_test)
        }
        _ => false,
    })
}

/// The parts of `any(…)`, cut at its outermost commas.
fn each_part(parts: &TokenStream) -> Vec<TokenStream> {
    let mut found = vec![TokenStream::new()];
    for token in parts.clone() {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => found.push(TokenStream::new()),
            _ => {
                if let Some(last) = found.last_mut() {
                    last.extend([token]);
                }
            }
        }
    }
    found.retain(|part| !part.is_empty());
    found
}

struct Pruner {
    left_out: Vec<(usize, usize)>,
}

impl Pruner {
    fn keep(&mut self, attributes: &[Attribute], syntax: &impl syn::spanned::Spanned) -> bool {
        let keep = !is_test(attributes);
        if !keep {
            self.left_out.push(lines_of(syntax));
        }
        keep
    }

    fn items(&mut self, items: &mut Vec<Item>) {
        items.retain(|item| self.keep(attributes(item), item));
    }
}

impl VisitMut for Pruner {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        self.items(&mut file.items);
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, item: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut item.content {
            self.items(items);
        }
        visit_mut::visit_item_mod_mut(self, item);
    }

    fn visit_item_impl_mut(&mut self, item: &mut syn::ItemImpl) {
        item.items.retain(|item| {
            let attributes: &[Attribute] = match item {
                ImplItem::Const(item) => &item.attrs,
                ImplItem::Fn(item) => &item.attrs,
                ImplItem::Type(item) => &item.attrs,
                ImplItem::Macro(item) => &item.attrs,
                _ => &[],
            };
            self.keep(attributes, item)
        });
        visit_mut::visit_item_impl_mut(self, item);
    }

    fn visit_item_trait_mut(&mut self, item: &mut syn::ItemTrait) {
        item.items.retain(|item| {
            let attributes: &[Attribute] = match item {
                TraitItem::Const(item) => &item.attrs,
                TraitItem::Fn(item) => &item.attrs,
                TraitItem::Type(item) => &item.attrs,
                TraitItem::Macro(item) => &item.attrs,
                _ => &[],
            };
            self.keep(attributes, item)
        });
        visit_mut::visit_item_trait_mut(self, item);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| {
            let attributes: &[Attribute] = match statement {
                Stmt::Local(local) => &local.attrs,
                Stmt::Item(item) => attributes(item),
                Stmt::Macro(call) => &call.attrs,
                Stmt::Expr(expression, _) => expression_attributes(expression),
            };
            self.keep(attributes, statement)
        });
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_fields_named_mut(&mut self, fields: &mut syn::FieldsNamed) {
        let all = std::mem::take(&mut fields.named);
        fields.named = all
            .into_iter()
            .filter(|field| self.keep(&field.attrs, field))
            .collect();
        visit_mut::visit_fields_named_mut(self, fields);
    }

    fn visit_item_enum_mut(&mut self, item: &mut syn::ItemEnum) {
        let all = std::mem::take(&mut item.variants);
        item.variants = all
            .into_iter()
            .filter(|variant| self.keep(&variant.attrs, variant))
            .collect();
        visit_mut::visit_item_enum_mut(self, item);
    }

    fn visit_expr_match_mut(&mut self, item: &mut syn::ExprMatch) {
        item.arms.retain(|arm| self.keep(&arm.attrs, arm));
        visit_mut::visit_expr_match_mut(self, item);
    }

    fn visit_expr_struct_mut(&mut self, item: &mut syn::ExprStruct) {
        let all = std::mem::take(&mut item.fields);
        item.fields = all
            .into_iter()
            .filter(|field| self.keep(&field.attrs, field))
            .collect();
        visit_mut::visit_expr_struct_mut(self, item);
    }
}

/// Of the expressions that stand as statements.
fn expression_attributes(expression: &Expr) -> &[Attribute] {
    match expression {
        Expr::Assign(found) => &found.attrs,
        Expr::Binary(found) => &found.attrs,
        Expr::Block(found) => &found.attrs,
        Expr::Call(found) => &found.attrs,
        Expr::ForLoop(found) => &found.attrs,
        Expr::If(found) => &found.attrs,
        Expr::Loop(found) => &found.attrs,
        Expr::Macro(found) => &found.attrs,
        Expr::Match(found) => &found.attrs,
        Expr::MethodCall(found) => &found.attrs,
        Expr::Return(found) => &found.attrs,
        Expr::Try(found) => &found.attrs,
        Expr::Unsafe(found) => &found.attrs,
        Expr::While(found) => &found.attrs,
        _ => &[],
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
