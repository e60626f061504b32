//! [`Lines`]: lines of bounded length, from any reader.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes read at a time.
const CHUNK: usize = 16 << 10;

/// What a reader had next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line without its end.
    Text(&'a [u8]),
    /// A line of so many bytes, which were thrown away as they came.
    TooLong(u64),
}

/// Reads lines; holds at most one of the longest and what was read beyond it.
pub(crate) struct Lines<R> {
    reader: R,
    most: usize,
    buffer: Vec<u8>,
    /// How much of the buffer was handed out.
    used: usize,
    /// How much of it has no line's end.
    searched: usize,
    /// Bytes thrown away of a line that goes on.
    dropped: Option<u64>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most so many bytes.
    pub(crate) fn new(reader: R, most: usize) -> Self {
        Self {
            reader,
            most,
            buffer: Vec::new(),
            used: 0,
            searched: 0,
            dropped: None,
            ended: false,
        }
    }

    /// The next line; `None` at the end. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let found = self.buffer[self.searched..]
                .iter()
                .position(|&byte| byte == b'\n');
            let end = match found {
                Some(at) => self.searched + at,
                None if self.ended && (self.used < self.buffer.len() || self.dropped.is_some()) => {
                    self.buffer.len()
                }
                None if self.ended => return Ok(None),
                None => {
                    self.searched = self.buffer.len();
                    self.make_room();
                    self.buffer.reserve(CHUNK);
                    let mut chunk = (&mut self.reader).take(CHUNK as u64);
                    self.ended = chunk.read_buf(&mut self.buffer).await? == 0;
                    continue;
                }
            };
            let start = self.used;
            self.used = (end + 1).min(self.buffer.len());
            self.searched = self.used;
            let dropped = self.dropped.take();
            let mut line = start..end;
            if self.buffer[line.clone()].ends_with(b"\r") {
                line.end -= 1;
            }
            let len = dropped.unwrap_or(0) + line.len() as u64;
            return Ok(Some(if dropped.is_some() || line.len() > self.most {
                Line::TooLong(len)
            } else {
                Line::Text(&self.buffer[line])
            }));
        }
    }

    /// Lets go of what was handed out, and of a line that is too long already.
    fn make_room(&mut self) {
        self.buffer.drain(..self.used);
        self.used = 0;
        let is_too_long = self.buffer.len() > self.most + 1;
        if is_too_long || self.dropped.is_some() {
            *self.dropped.get_or_insert(0) += self.buffer.len() as u64;
            self.buffer.clear();
        }
        self.searched = self.buffer.len();
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &[u8], most: usize) -> Vec<String> {
        let mut lines = Lines::new(text, most);
        let mut out = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            out.push(match line {
                Line::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Line::TooLong(len) => format!("<{len}>"),
            });
        }
        out
    }

    #[tokio::test]
    async fn lines_end_with_lf_or_crlf_or_the_end() {
        assert_eq!(all(b"a\r\n\nbc\nd", 8).await, ["a", "", "bc", "d"]);
        assert_eq!(all(b"", 8).await, [""; 0]);
        assert_eq!(all(b"a\n", 8).await, ["a"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_the_next_is_read() {
        assert_eq!(
            all(b"12345678\n123456789\nx", 8).await,
            ["12345678", "<9>", "x"]
        );
        let long = [vec![b'x'; 1_000_000], b"\nend".to_vec()].concat();
        let mut lines = Lines::new(long.as_slice(), 1000);
        assert_eq!(lines.next().await.unwrap(), Some(Line::TooLong(1_000_000)));
        assert!(lines.held() < 1000 + 4 * CHUNK, "{} bytes", lines.held());
        assert_eq!(lines.next().await.unwrap(), Some(Line::Text(b"end")));
        assert_eq!(lines.next().await.unwrap(), None);
    }
}
