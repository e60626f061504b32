//! [`Records`]: records, one a line, from anything that can be read.

use std::io::{BufRead, Read};

use towline_link::codec::{MAX_TEXT, Record};

/// Records, with the numbers of their lines, from 1 on; why a line is none. Blank lines are left out; one that is longer
/// than a record may be is skipped.
pub(super) struct Records<R> {
    lines: Lines<R>,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R) -> Self {
        let lines = Lines {
            input,
            number: 0,
            is_broken: false,
        };
        Self { lines }
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = (u64, Result<Record, String>);

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.lines.next()?.and_then(|line| {
            let parsed = Record::parse(line.trim_ascii());
            parsed.map_err(|error| error.to_string())
        });
        Some((self.lines.number, record))
    }
}

/// The lines.
struct Lines<R> {
    input: R,
    number: u64,
    is_broken: bool,
}

impl<R: BufRead> Lines<R> {
    /// What cannot be read ends it.
    fn fail<T>(&mut self, error: &std::io::Error) -> Result<T, String> {
        self.is_broken = true;
        Err(format!("nothing more can be read: {error}"))
    }

    /// Skips the rest of a line.
    fn skip(&mut self) -> std::io::Result<()> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end + 1);
            self.input.consume(taken);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Vec<u8>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let most = MAX_TEXT as u64 + 1;
        while !self.is_broken {
            let mut line = Vec::new();
            let read = self.input.by_ref().take(most).read_until(b'\n', &mut line);
            self.number += 1;
            match read {
                Ok(0) => return None,
                Ok(_) if line.len() as u64 == most && line.last() != Some(&b'\n') => {
                    return Some(match self.skip() {
                        Ok(()) => Err(format!("longer than {MAX_TEXT} bytes")),
                        Err(error) => self.fail(&error),
                    });
                }
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => return Some(Ok(line)),
                Err(error) => return Some(self.fail(&error)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_skipped() {
        let long = "x".repeat(MAX_TEXT + 7);
        let text = format!("{{}}\n\n{long}\n[]");
        let records: Vec<_> = Records::new(text.as_bytes()).collect();
        assert!(matches!(records[0], (1, Ok(_))));
        assert!(matches!(&records[1], (3, Err(why)) if why.starts_with("longer than")));
        assert!(matches!(&records[2], (4, Err(why)) if why.contains("a JSON object")));
        assert_eq!(records.len(), 3);
    }

    #[test]
    fn blank_lines_are_counted_and_an_error_is_told_once() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the disk is gone"))
            }
        }
        let blank = "\n".repeat(300_000);
        let text = format!("{blank}{{}}\n");
        let mut records = Records::new(std::io::BufReader::new(text.as_bytes().chain(Broken)));
        assert!(matches!(records.next(), Some((300_001, Ok(_)))));
        let (_, error) = records.next().unwrap();
        let error = error.unwrap_err();
        assert!(error.ends_with("the disk is gone"), "{error}");
        assert!(records.next().is_none());
    }
}
