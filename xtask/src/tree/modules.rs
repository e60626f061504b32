//! The modules of a crate: which file each is, what it defines and imports, where a path leads.
//!
//! Read by `Tree::read`; `prune` takes out what only tests have, `imports` reads `use`.

use std::collections::BTreeMap;

use syn::Item;

use super::imports::{Import, imports};
use super::lines::line;
use super::prune::prune;
use crate::Outcome;
use crate::exec::{files_under, relative, root};

/// Source files: their text by their path from the workspace's root.
pub(crate) type Sources = BTreeMap<String, String>;

/// All Rust source under these folders of the workspace.
pub(crate) fn sources(folders: &[&str]) -> Sources {
    folders
        .iter()
        .flat_map(|folder| files_under(&root().join(folder), "rs"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            (relative(&path), text)
        })
        .collect()
}

/// Which part of the source counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What ships: without items that only test or fuzz builds have.
    Shipped,
    /// Everything.
    WithTests,
}

/// One file of the tree.
pub(crate) struct SourceFile {
    /// From the workspace's root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
    /// First and last line of what the scope left out.
    pub(crate) left_out: Vec<(usize, usize)>,
    /// The module that the file is.
    pub(super) module: usize,
}

/// The modules of one target: a library or a program.
pub(crate) struct Tree {
    pub(crate) files: Vec<SourceFile>,
    pub(super) modules: Vec<Module>,
}

/// One module; children and parent are indexes in `Tree::modules`.
pub(super) struct Module {
    name: String,
    parent: Option<usize>,
    file: usize,
    children: BTreeMap<String, usize>,
    /// Whether each name is a trait: a `use` of a trait is a use even if nothing names it again.
    pub(super) items: BTreeMap<String, bool>,
    imports: Vec<Import>,
    /// Some names come from a macro, so one that is not in `items` may exist all the same.
    has_macros: bool,
}

/// A name in the module that defines it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Definition {
    pub(super) module: usize,
    /// The item's name.
    pub(super) name: String,
}

/// What a path leads to.
pub(super) enum Place {
    Module(usize),
    /// An item, and how many segments of the path follow it (a variant, an associated function).
    Item(Definition, usize),
}

/// What the last segment of a path may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Anything,
    /// A lone name in an expression is never a module.
    Item,
}

impl Tree {
    /// Reads the target whose first file is `root`.
    pub(crate) fn read(sources: &Sources, root: &str, scope: Scope) -> Outcome<Self> {
        let mut tree = Self {
            files: Vec::new(),
            modules: Vec::new(),
        };
        tree.add_file(sources, scope, root, folder_of(root), "crate", None)?;
        Ok(tree)
    }

    /// The file that defines this item.
    pub(super) fn file_of(&self, definition: &Definition) -> usize {
        self.modules[definition.module].file
    }

    /// Each file with the module it is, from the crate's root.
    pub(crate) fn files_with_modules(&self) -> impl Iterator<Item = (&SourceFile, Vec<String>)> {
        self.files
            .iter()
            .map(|file| (file, self.segments_of(file.module)))
    }

    /// The only struct of this name, if there is just one.
    pub(crate) fn find_struct(&self, name: &str) -> Option<(Definition, &syn::ItemStruct)> {
        let mut found = Vec::new();
        for file in &self.files {
            self.structs(file.module, &file.syntax.items, name, &mut found);
        }
        (found.len() == 1).then(|| found.remove(0))
    }

    fn structs<'a>(
        &'a self,
        module: usize,
        items: &'a [Item],
        name: &str,
        found: &mut Vec<(Definition, &'a syn::ItemStruct)>,
    ) {
        for item in items {
            match item {
                Item::Struct(item) if item.ident == name => found.push((
                    Definition {
                        module,
                        name: name.to_owned(),
                    },
                    item,
                )),
                Item::Mod(item) => {
                    if let (Some((_, items)), Some(child)) =
                        (&item.content, self.child(module, &item.ident.to_string()))
                    {
                        self.structs(child, items, name, found);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn child(&self, module: usize, name: &str) -> Option<usize> {
        self.modules[module].children.get(name).copied()
    }

    pub(super) fn segments_of(&self, module: usize) -> Vec<String> {
        let mut segments = Vec::new();
        let mut at = module;
        while let Some(parent) = self.modules[at].parent {
            segments.push(self.modules[at].name.clone());
            at = parent;
        }
        segments.reverse();
        segments
    }

    /// Adds the module that `path` is; its children's files lie in `folder`.
    fn add_file(
        &mut self,
        sources: &Sources,
        scope: Scope,
        path: &str,
        folder: &str,
        name: &str,
        parent: Option<usize>,
    ) -> Outcome<usize> {
        let text = sources
            .get(path)
            .ok_or_else(|| format!("{path}: no such file, though a `mod` names it"))?;
        let mut syntax = syn::parse_file(text)
            .map_err(|error| format!("{path}:{}: {error}", line(error.span())))?;
        let left_out = match scope {
            Scope::Shipped => prune(&mut syntax),
            Scope::WithTests => Vec::new(),
        };
        let file = self.files.len();
        let module = self.add_module(name, parent, file);
        let items = syntax.items.clone();
        self.files.push(SourceFile {
            path: path.to_owned(),
            text: text.clone(),
            syntax,
            left_out,
            module,
        });
        self.add_items(sources, scope, folder, module, &items)?;
        Ok(module)
    }

    fn add_module(&mut self, name: &str, parent: Option<usize>, file: usize) -> usize {
        let module = self.modules.len();
        self.modules.push(Module {
            name: name.to_owned(),
            parent,
            file,
            children: BTreeMap::new(),
            items: BTreeMap::new(),
            imports: Vec::new(),
            has_macros: false,
        });
        if let Some(parent) = parent {
            // Of two modules under one name, each for another system, the first stands for both.
            self.modules[parent]
                .children
                .entry(name.to_owned())
                .or_insert(module);
        }
        module
    }

    fn add_items(
        &mut self,
        sources: &Sources,
        scope: Scope,
        folder: &str,
        module: usize,
        items: &[Item],
    ) -> Outcome {
        for item in items {
            if let Item::Mod(item) = item {
                self.add_child(sources, scope, folder, module, item)?;
                continue;
            }
            let own = &mut self.modules[module];
            own.imports.extend(imports(item));
            match item {
                Item::Macro(item) if item.ident.is_none() => own.has_macros = true,
                _ => {
                    if let Some(name) = name_of(item) {
                        let is_trait = matches!(item, Item::Trait(_) | Item::TraitAlias(_));
                        own.items.insert(name, is_trait);
                    }
                }
            }
        }
        Ok(())
    }

    fn add_child(
        &mut self,
        sources: &Sources,
        scope: Scope,
        folder: &str,
        module: usize,
        item: &syn::ItemMod,
    ) -> Outcome {
        let name = item.ident.to_string();
        let inner = joined(folder, &name);
        if let Some((_, items)) = &item.content {
            let file = self.modules[module].file;
            let child = self.add_module(&name, Some(module), file);
            return self.add_items(sources, scope, &inner, child, items);
        }
        let named = item.attrs.iter().find_map(path_attribute);
        let own = self.files[self.modules[module].file].path.clone();
        let (path, folder) = match named {
            Some(named) => {
                let path = joined(folder_of(&own), &named);
                let folder = folder_of(&path).to_owned();
                (path, folder)
            }
            None => {
                let flat = format!("{inner}.rs");
                let path = if sources.contains_key(&flat) {
                    flat
                } else {
                    format!("{inner}/mod.rs")
                };
                (path, inner)
            }
        };
        self.add_file(sources, scope, &path, &folder, &name, Some(module))?;
        Ok(())
    }

    /// Where a path written in `module` leads; `None` outside this crate.
    pub(super) fn resolve(&self, module: usize, path: &[String], wanted: Wanted) -> Option<Place> {
        self.walk(module, path, wanted, &mut Vec::new())
    }

    fn walk(
        &self,
        module: usize,
        path: &[String],
        wanted: Wanted,
        looking: &mut Vec<(usize, String)>,
    ) -> Option<Place> {
        let mut at = module;
        for (index, segment) in path.iter().enumerate() {
            let rest = path.len() - index - 1;
            match (index, segment.as_str()) {
                (0, "crate") => at = 0,
                (0, "self") => {}
                (_, "super") => at = self.modules[at].parent?,
                _ => {
                    let wanted = if rest == 0 { Some(wanted) } else { None };
                    let found = self
                        .look_up(at, segment, wanted, looking)
                        .or_else(|| (index > 0).then(|| self.made_by_macro(at, segment))?)?;
                    match found {
                        Place::Module(found) => at = found,
                        Place::Item(found, _) => return Some(Place::Item(found, rest)),
                    }
                }
            }
        }
        Some(Place::Module(at))
    }

    /// A path that goes through a module with macros may mean a name that one of them makes.
    fn made_by_macro(&self, module: usize, name: &str) -> Option<Place> {
        self.modules[module].has_macros.then(|| {
            let name = name.to_owned();
            Place::Item(Definition { module, name }, 0)
        })
    }

    /// `wanted` is `None` when more segments follow, which makes a module the first choice.
    fn look_up(
        &self,
        module: usize,
        name: &str,
        wanted: Option<Wanted>,
        looking: &mut Vec<(usize, String)>,
    ) -> Option<Place> {
        // A glob that leads back here finds nothing new.
        let key = (module, name.to_owned());
        if looking.contains(&key) {
            return None;
        }
        looking.push(key);
        let found = self.find(module, name, wanted, looking);
        looking.pop();
        found
    }

    fn find(
        &self,
        module: usize,
        name: &str,
        wanted: Option<Wanted>,
        looking: &mut Vec<(usize, String)>,
    ) -> Option<Place> {
        let own = &self.modules[module];
        let child = self.child(module, name).map(Place::Module);
        let item = || {
            own.items.contains_key(name).then(|| {
                let name = name.to_owned();
                Place::Item(Definition { module, name }, 0)
            })
        };
        let mut imported = || {
            own.imports
                .iter()
                .filter(|import| import.name.as_deref() == Some(name))
                .find_map(|import| {
                    self.walk(module, &import.path, Wanted::Anything, looking)
                        .filter(|place| {
                            wanted != Some(Wanted::Item) || matches!(place, Place::Item(..))
                        })
                })
        };
        let found = match wanted {
            None => child.or_else(item).or_else(imported),
            Some(Wanted::Anything) => item().or_else(imported).or(child),
            Some(Wanted::Item) => item().or_else(&mut imported),
        };
        found.or_else(|| {
            own.imports
                .iter()
                .filter(|import| import.name.is_none())
                .find_map(|import| {
                    match self.walk(module, &import.path, Wanted::Anything, looking)? {
                        Place::Module(target) => self.look_up(target, name, wanted, looking),
                        Place::Item(..) => None,
                    }
                })
        })
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `a/b` and `../c` → `a/c`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(meta) = &attribute.meta else {
        return None;
    };
    match (&meta.value, meta.path.is_ident("path")) {
        (
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }),
            true,
        ) => Some(text.value()),
        _ => None,
    }
}
