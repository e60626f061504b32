//! The site: a folder of files, the same in every invocation, and whether a copy is equal.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::material::noise;

/// Files of the site.
pub(crate) const FILES: usize = 1_000;
/// The largest file, the first one; the second is empty.
const LARGEST: usize = 200_000;
/// Of the sizes, and of what the files hold.
const SEED: u64 = 18;
/// Random bytes that make a size.
const WIDTH: usize = 4;
const ENDS: [&str; 8] = ["html", "css", "js", "json", "png", "txt", "woff2", "bin"];

/// The folder and the list of what is in it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) root: PathBuf,
    /// A file with one path a line, each with its leading slash.
    pub(crate) list: PathBuf,
    names: Vec<String>,
}

impl Site {
    /// Writes the files into `root`, and their paths into `list`.
    pub(crate) fn generate(root: &Path, list: &Path) -> Result<Self, Error> {
        // What an earlier site had is nothing to this one.
        let _ = fs::remove_dir_all(root);
        fs::create_dir_all(root)?;
        let names: Vec<String> = (0..FILES)
            .map(|number| format!("f{number:04}.{}", ENDS[number % ENDS.len()]))
            .collect();
        let sizes = sizes(&noise(SEED, FILES * WIDTH));
        for (number, (name, size)) in names.iter().zip(sizes).enumerate() {
            fs::write(root.join(name), noise(SEED + 1 + number as u64, size))?;
        }
        let lines: String = names.iter().map(|name| format!("/{name}\n")).collect();
        fs::write(list, lines)?;
        Ok(Self {
            root: root.to_owned(),
            list: list.to_owned(),
            names,
        })
    }

    /// Compares a copy with the site, byte for byte; how many bytes there are.
    pub(crate) fn compare(&self, copy: &Path) -> Result<usize, Error> {
        let mut bytes = 0;
        for name in &self.names {
            let file = copy.join(name);
            let got = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            if got != fs::read(self.root.join(name))? {
                return Err(format!("{} differs", file.display()).into());
            }
            bytes += got.len();
        }
        match fs::read_dir(copy)?.count() {
            FILES => Ok(bytes),
            more => Err(format!("{more} files instead of {FILES}").into()),
        }
    }
}

/// A size of each file: as many between 1 and 10 bytes as between 10 and 100.
fn sizes(random: &[u8]) -> Vec<usize> {
    let size = |bytes: &[u8]| {
        let number = bytes
            .iter()
            .fold(0.0, |all, byte| 256.0 * all + f64::from(*byte));
        let part = number / 256_f64.powi(bytes.len() as i32);
        (LARGEST as f64).powf(part) as usize
    };
    let mut sizes: Vec<usize> = random.chunks_exact(WIDTH).map(size).collect();
    sizes[0] = LARGEST;
    sizes[1] = 0;
    sizes
}

#[cfg(test)]
mod tests;
