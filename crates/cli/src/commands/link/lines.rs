//! [`Lines`]: lines of bounded length from anything that can be read.

use std::io::{BufRead, Read};

use towline_link::codec::MAX_TEXT;

/// The lines that are not blank; one that is longer than a record may be is skipped and told.
pub(super) struct Lines<R> {
    input: R,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input }
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
        let mut line = Vec::new();
        let most = MAX_TEXT as u64 + 1;
        match self.input.by_ref().take(most).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) if line.len() as u64 == most && line.last() != Some(&b'\n') => {
                match self.skip() {
                    Ok(()) => Some(Err(format!("longer than {MAX_TEXT} bytes"))),
                    Err(error) => Some(Err(error.to_string())),
                }
            }
            Ok(_) if line.trim_ascii().is_empty() => self.next(),
            Ok(_) => Some(Ok(line)),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_skipped() {
        let long = "x".repeat(MAX_TEXT + 7);
        let text = format!("{{}}\n\n{long}\n[]");
        let lines: Vec<_> = Lines::new(text.as_bytes()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].as_deref(), Ok(&b"{}\n"[..]));
        assert!(lines[1].is_err());
        assert_eq!(lines[2].as_deref(), Ok(&b"[]"[..]));
    }
}
