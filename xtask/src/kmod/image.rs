//! The guest's files: a folder that becomes an initramfs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::work::{io, remake};
use crate::Outcome;
use crate::exec::{capture, program, which};

/// The system's Python: one that a version manager built may need files from anywhere.
const PYTHON: &str = "/usr/bin/python3";

/// Prints the files of all modules that the scripts named as arguments import, but the scripts' own.
const LIST_IMPORTED: &str = "
import ast, importlib, sys
import encodings.idna, encodings.utf_8, encodings.ascii, encodings.latin_1
own = {path.rsplit('/', 1)[-1][:-3] for path in sys.argv[1:]}
for path in sys.argv[1:]:
    with open(path) as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
            [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name not in own:
                importlib.import_module(name)
for module in list(sys.modules.values()):
    if path := getattr(module, '__file__', None):
        print(path)
";

pub(super) struct Image(PathBuf);

impl Image {
    pub(super) fn new(folder: &Path) -> Outcome<Self> {
        remake(folder)?;
        for part in ["bin", "dev", "proc", "sys", "tmp", "t"] {
            fs::create_dir(folder.join(part)).map_err(io(part))?;
        }
        // Programs and the kernel look for their tools in several places.
        fs::create_dir(folder.join("usr")).map_err(io("usr"))?;
        for (link, to) in [
            ("sbin", "bin"),
            ("usr/bin", "../bin"),
            ("usr/sbin", "../bin"),
        ] {
            symlink(to, folder.join(link)).map_err(io(link))?;
        }
        Ok(Self(folder.to_path_buf()))
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn write(&self, to: &str, text: &str) -> Outcome {
        self.write_bytes(to, text.as_bytes())
    }

    pub(super) fn write_bytes(&self, to: &str, bytes: &[u8]) -> Outcome {
        let path = self.make_room(to)?;
        fs::write(path, bytes).map_err(io(to))
    }

    /// A file, with its permissions.
    pub(super) fn add(&self, from: &Path, to: &str) -> Outcome {
        let path = self.make_room(to)?;
        fs::copy(from, path)
            .map(drop)
            .map_err(io(&from.display().to_string()))
    }

    fn make_room(&self, to: &str) -> Outcome<PathBuf> {
        let path = self.0.join(to);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io(to))?;
        }
        Ok(path)
    }

    /// A program and the libraries that `ldd` names, at their own places.
    pub(super) fn add_program(&self, from: &Path, to: &str) -> Outcome {
        self.add(from, to)?;
        self.add_libraries(&[from.to_path_buf()])
    }

    fn add_libraries(&self, files: &[PathBuf]) -> Outcome {
        let mut ldd = Command::new("ldd");
        // It fails for a static file, and says nothing that we want.
        let output = ldd.args(files).stderr(Stdio::null()).output();
        let output = output.map_err(io("ldd"))?.stdout;
        let text = String::from_utf8_lossy(&output).into_owned();
        let paths: BTreeSet<&str> = text
            .split_whitespace()
            .filter(|word| word.starts_with('/') && !word.ends_with(':'))
            .collect();
        for path in paths {
            self.add(Path::new(path), &path[1..])?;
        }
        Ok(())
    }

    pub(super) fn busybox(&self) -> Outcome {
        let busybox = which("busybox").ok_or("busybox is gone")?;
        self.add(&busybox, "bin/busybox")?;
        for name in capture(program("busybox", ["--list"]).stderr(Stdio::null()))?.lines() {
            if name != "busybox" {
                symlink("busybox", self.0.join("bin").join(name)).map_err(io(name))?;
            }
        }
        Ok(())
    }

    /// Python with exactly the files that it opens for what `scripts` import.
    pub(super) fn python(&self, scripts: &[PathBuf]) -> Outcome {
        let mut python = Command::new(PYTHON);
        python.args(["-S", "-E", "-c", LIST_IMPORTED]).args(scripts);
        let files = capture(&mut python)?;
        let mut libraries = vec![PathBuf::from(PYTHON)];
        for file in files.lines() {
            self.add(Path::new(file), &file[1..])?;
            if file.ends_with(".so") {
                libraries.push(PathBuf::from(file));
            }
        }
        self.add(Path::new(PYTHON), "bin/python3")?;
        self.add_libraries(&libraries)
    }

    pub(super) fn pack(&self, to: &Path) -> Outcome {
        let line = format!(
            "find . | cpio --create --format=newc --quiet --owner=0:0 | gzip -1 > '{}'",
            to.display()
        );
        let mut shell = Command::new("sh");
        let status = shell.args(["-c", &line]).current_dir(&self.0).status();
        match status.map_err(io("sh"))? {
            status if status.success() => Ok(()),
            status => Err(format!("cpio ended with {status}")),
        }
    }
}
