//! [`FileDisk`]: a folder of segments.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use towline_link::spool::Disk;

/// Held while a process uses the folder.
const LOCK: &str = "lock";
/// How the name of a segment ends; before it stands its number in 16 hexadecimal digits.
const ENDING: &str = ".log";
/// What a disk reads or does not read as a whole, in bytes.
const BLOCK: u64 = 4_096;
/// The system's number for what a disk cannot do.
const EIO: i32 = 5;

/// A file or folder did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}{}", hint(source))]
pub struct FileError {
    /// The file or folder.
    pub path: String,
    /// What the system says.
    pub source: io::Error,
}

impl FileError {
    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.display().to_string();
        Self { path, source }
    }
}

/// What to do about it.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            " (free space there, or give the spool a smaller maximum; what was committed is kept)"
        }
        ErrorKind::ReadOnlyFilesystem => {
            " (a disk that has errors is often made read-only: look at the kernel's log)"
        }
        ErrorKind::PermissionDenied => " (the folder has to belong to who runs this program)",
        ErrorKind::WouldBlock => {
            " (another process uses this spool: stop it, or use another folder)"
        }
        _ => "",
    }
}

/// A folder of files, one for each segment, that one process uses at a time.
///
/// Its calls block, [`sync`](Disk::sync) as long as the disk takes: 0.1 to some 100 ms. Other files in the
/// folder are left alone.
#[derive(Debug)]
pub struct FileDisk {
    folder: PathBuf,
    /// For as long as this lives.
    _lock: File,
    /// The segment that is written, and the one that is read.
    writer: Option<(u64, File)>,
    reader: Option<(u64, File)>,
    /// Whether a file was made since the folder was synced.
    has_new: bool,
}

impl FileDisk {
    /// Makes the folder where there is none, for the user alone, and locks it.
    ///
    /// # Errors
    /// Where the folder cannot be made or used, or another process uses it ([`ErrorKind::WouldBlock`]).
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, FileError> {
        let folder = folder.into();
        make(&folder)?;
        let path = folder.join(LOCK);
        let failed = |error| FileError::new(&path, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let lock = options.open(&path).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => failed(ErrorKind::WouldBlock.into()),
            TryLockError::Error(error) => failed(error),
        })?;
        Ok(Self {
            folder,
            _lock: lock,
            writer: None,
            reader: None,
            // A program that was killed may have made some.
            has_new: true,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(format!("{segment:016x}{ENDING}"))
    }

    /// Does something with a segment's file.
    fn with<T>(
        &mut self,
        segment: u64,
        is_for_writing: bool,
        act: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> Result<T, FileError> {
        let path = self.path(segment);
        let failed = |error| FileError::new(&path, error);
        let held = match is_for_writing {
            true => &mut self.writer,
            false => &mut self.reader,
        };
        let file = match held {
            Some((number, file)) if *number == segment => file,
            _ => {
                let mut options = OpenOptions::new();
                let options = options.read(!is_for_writing).append(is_for_writing);
                let file = options.open(&path).map_err(failed)?;
                &mut held.insert((segment, file)).1
            }
        };
        act(file).map_err(failed)
    }

    /// Makes durable which files there are.
    fn sync_folder(&self) -> Result<(), FileError> {
        sync_folder(&self.folder)
    }
}

fn sync_folder(folder: &Path) -> Result<(), FileError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| FileError::new(folder, error))
}

/// Writes a small file whole, or leaves it as it was, whatever happens meanwhile; it is durable then.
///
/// # Errors
/// When it may be as it was.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|error| FileError::new(path, error))?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    sync_folder(folder.unwrap_or(Path::new(".")))
}

/// Makes a folder, and it durable, with those it is in.
fn make(folder: &Path) -> Result<(), FileError> {
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if folder.is_dir() {
        // Who made it may have been killed before this; where it may not be done, it was somebody else's.
        let _ = sync_folder(parent);
        return Ok(());
    }
    make(parent)?;
    // Where a boat was is nobody else's business.
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(FileError::new(folder, error))
        }
        _ => sync_folder(parent),
    }
}

/// Fills the buffer as far as the file goes. Bytes that the disk cannot read (EIO) become zeros, which the spool takes
/// for damage: what is around them is not lost with them.
fn read_around(file: &mut (impl Read + Seek), offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        file.seek(SeekFrom::Start(at))?;
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(EIO) => {
                let end = ((at / BLOCK + 1) * BLOCK).min(file.seek(SeekFrom::End(0))?);
                let unread = (end.saturating_sub(at) as usize).min(buffer.len() - filled);
                if unread == 0 {
                    return Err(error);
                }
                tracing::error!(
                    "the disk cannot read {unread} bytes of the spool at {at}: {error}"
                );
                buffer[filled..filled + unread].fill(0);
                filled += unread;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The number of the segment that a file's name says.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING)?;
    let is_ours = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 16 || !digits.bytes().all(is_ours) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

impl Disk for FileDisk {
    type Error = FileError;

    fn list(&mut self) -> Result<Vec<u64>, FileError> {
        let failed = |error| FileError::new(&self.folder, error);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            numbers.extend(name.to_str().and_then(number));
        }
        Ok(numbers)
    }

    fn len(&mut self, segment: u64) -> Result<u64, FileError> {
        self.with(segment, false, |file| Ok(file.metadata()?.len()))
    }

    fn read(&mut self, segment: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.with(segment, false, |file| read_around(file, offset, buffer))
    }

    fn create(&mut self, segment: u64) -> Result<(), FileError> {
        let path = self.path(segment);
        let mut options = OpenOptions::new();
        let file = options.append(true).create_new(true).open(&path);
        let file = file.map_err(|error| FileError::new(&path, error))?;
        self.writer = Some((segment, file));
        self.has_new = true;
        Ok(())
    }

    fn append(&mut self, segment: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.with(segment, true, |file| file.write_all(bytes))
    }

    fn sync(&mut self, segment: u64) -> Result<(), FileError> {
        // The length counts as data where it is needed to read it (fdatasync(2)).
        self.with(segment, true, |file| file.sync_data())?;
        if self.has_new {
            self.sync_folder()?;
            self.has_new = false;
        }
        Ok(())
    }

    fn truncate(&mut self, segment: u64, len: u64) -> Result<(), FileError> {
        self.with(segment, true, |file| file.set_len(len))
    }

    fn set_aside(&mut self, segment: u64) -> Result<(), FileError> {
        let path = self.path(segment);
        let aside = path.with_extension("damaged");
        tracing::error!(
            "{}: nothing of it can be read; it is kept as {}",
            path.display(),
            aside.display()
        );
        match fs::rename(&path, aside) {
            Err(error) => Err(FileError::new(&path, error)),
            Ok(()) => self.sync_folder(),
        }
    }

    fn remove(&mut self, segment: u64) -> Result<(), FileError> {
        for held in [&mut self.writer, &mut self.reader] {
            held.take_if(|(number, _)| *number == segment);
        }
        let path = self.path(segment);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::new(&path, error)),
            _ => self.sync_folder(),
        }
    }
}

#[cfg(test)]
mod tests;
