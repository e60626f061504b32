//! `use` declarations as a list of leaves: groups, renames and globs taken apart.

use syn::visit::Visit;
use syn::{Item, UseTree, Visibility};

use super::lines::line;

/// One leaf of a `use`.
pub(super) struct Import {
    /// `None` for a glob.
    pub(super) name: Option<String>,
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// Visible outside its module, so that it may be there for others.
    pub(super) public: bool,
}

/// The leaves of the `use` declarations in an item, those inside its functions included.
pub(super) fn imports(item: &Item) -> Vec<Import> {
    struct Collector(Vec<Import>);
    impl<'a> Visit<'a> for Collector {
        fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
            self.0.extend(leaves(item));
        }
        fn visit_item_mod(&mut self, _: &'a syn::ItemMod) {}
    }
    let mut collector = Collector(Vec::new());
    collector.visit_item(item);
    collector.0
}

/// The leaves of one `use` declaration.
pub(super) fn leaves(item: &syn::ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    let public = !matches!(item.vis, Visibility::Inherited);
    let mut prefix = Vec::new();
    if item.leading_colon.is_some() {
        prefix.push(String::new());
    }
    leaves_of(&item.tree, &mut prefix, public, &mut found);
    found
}

fn leaves_of(tree: &UseTree, prefix: &mut Vec<String>, public: bool, found: &mut Vec<Import>) {
    let mut leaf = |name: Option<String>, last: Option<String>, line| {
        let path = prefix.iter().cloned().chain(last).collect();
        found.push(Import {
            name,
            path,
            line,
            public,
        });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            leaves_of(&path.tree, prefix, public, found);
            prefix.pop();
        }
        UseTree::Name(name) => {
            let (name, at) = (name.ident.to_string(), line(name.ident.span()));
            if name == "self" {
                leaf(prefix.last().cloned(), None, at);
            } else {
                leaf(Some(name.clone()), Some(name), at);
            }
        }
        UseTree::Rename(rename) => {
            let (name, at) = (rename.ident.to_string(), line(rename.ident.span()));
            let last = (name != "self").then_some(name);
            leaf(Some(rename.rename.to_string()), last, at);
        }
        UseTree::Glob(glob) => leaf(None, None, line(glob.star_token.span)),
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves_of(tree, prefix, public, found);
            }
        }
    }
}
