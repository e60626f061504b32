//! [`Routes`]: a table from paths to whatever serves them.

use std::collections::HashMap;

/// Exact paths, and prefixes that end with a slash.
pub(super) struct Routes<T> {
    exact: HashMap<String, T>,
    /// The longest first.
    prefixes: Vec<(String, T)>,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            prefixes: Vec::new(),
        }
    }
}

impl<T> Routes<T> {
    /// Serves `path`; with `/*` at its end, everything below it.
    ///
    /// # Panics
    /// When the path does not begin with a slash, or is there already: two handlers for one path are a
    /// mistake of the program.
    pub(super) fn add(&mut self, path: &str, target: T) {
        assert!(path.starts_with('/'), "`{path}` begins with no slash");
        let taken = match path
            .strip_suffix('*')
            .filter(|prefix| prefix.ends_with('/'))
        {
            None => self.exact.insert(path.to_owned(), target).is_some(),
            Some(prefix) => {
                let taken = self.prefixes.iter().any(|(known, _)| known == prefix);
                self.prefixes.push((prefix.to_owned(), target));
                self.prefixes
                    .sort_by_key(|(prefix, _)| usize::MAX - prefix.len());
                taken
            }
        };
        assert!(!taken, "`{path}` has two handlers");
    }

    /// What serves a path without its query: the exact one, or else the longest prefix.
    pub(super) fn find(&self, path: &str) -> Option<&T> {
        let below = || {
            let mut prefixes = self.prefixes.iter();
            prefixes.find(|(prefix, _)| path.starts_with(prefix.as_str()))
        };
        let exact = self.exact.get(path);
        exact.or_else(|| below().map(|(_, target)| target))
    }
}

#[cfg(test)]
mod tests;
