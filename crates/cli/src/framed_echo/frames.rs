//! The frames of the echo, its server and its client, over any stream.
//!
//! A frame is four bytes of length, big-endian, then as many bytes, which come back as they went. The
//! tests of `towline::stcp` include this file.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest payload that is taken.
pub const MAX_PAYLOAD: usize = 16 << 20;

const HEADER: usize = 4;

/// Room before the first frame.
const FIRST_ROOM: usize = 1024;

/// Room beside a large frame: a stream works best when there is more room than data.
const SLACK: usize = 20 * 1024;

/// Sends every frame back until the peer ends its stream, and then ends ours; how many there were.
///
/// # Errors
/// The stream's, a frame longer than [`MAX_PAYLOAD`], or an end inside a frame.
pub async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<u64> {
    let mut frames = Frames::new();
    let mut count = 0;
    loop {
        let whole = frames.whole()?;
        if whole.len == 0 {
            if frames.receive(&mut stream).await? == 0 {
                return match frames.is_empty() {
                    true => stream.shutdown().await.map(|()| count),
                    false => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
            continue;
        }
        stream.write_all(frames.next(whole.len)).await?;
        stream.flush().await?;
        frames.consume(whole.len);
        count += whole.count;
    }
}

/// The asking side of one connection.
pub struct Client<S> {
    stream: S,
    /// Header and payload.
    frame: Vec<u8>,
    frames: Frames,
    sequence: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Asks with payloads of `payload` bytes, at most [`MAX_PAYLOAD`].
    pub fn new(stream: S, payload: usize) -> Self {
        let payload = payload.min(MAX_PAYLOAD);
        let mut frame = (payload as u32).to_be_bytes().to_vec();
        frame.extend((0..payload).map(|at| (at * 31 % 251) as u8));
        Self {
            stream,
            frame,
            frames: Frames::new(),
            sequence: 0,
        }
    }

    /// One frame there and back.
    ///
    /// # Errors
    /// The stream's, its end, or an answer that is not what was sent.
    pub async fn exchange(&mut self) -> io::Result<()> {
        // No two payloads are the same where there is room for a number.
        self.sequence += 1;
        let number = self.sequence.to_be_bytes();
        if let Some(place) = self.frame.get_mut(HEADER..HEADER + number.len()) {
            place.copy_from_slice(&number);
        }
        self.stream.write_all(&self.frame).await?;
        self.stream.flush().await?;
        while self.frames.whole()?.len == 0 {
            if self.frames.receive(&mut self.stream).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        if self.frames.next(self.frame.len()) != self.frame {
            let what = "the answer is not what was sent";
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        self.frames.consume(self.frame.len());
        Ok(())
    }

    /// Ends the stream in order and waits for the peer's end.
    ///
    /// # Errors
    /// The stream's, or more data instead of an end.
    pub async fn finish(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        match self.stream.read(&mut [0]).await? {
            0 => Ok(()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Received bytes, seen as frames.
struct Frames {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Frames that are complete: their bytes and their number.
struct Whole {
    len: usize,
    count: u64,
}

impl Frames {
    fn new() -> Self {
        Self {
            bytes: vec![0; FIRST_ROOM],
            start: 0,
            end: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn next(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.end.min(self.start + len)]
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The complete frames at the front; makes room for one that is not.
    fn whole(&mut self) -> io::Result<Whole> {
        let mut whole = Whole { len: 0, count: 0 };
        loop {
            let rest = &self.bytes[self.start + whole.len..self.end];
            let Some(header) = rest.first_chunk::<HEADER>() else {
                break;
            };
            let len = u32::from_be_bytes(*header) as usize;
            if len > MAX_PAYLOAD {
                let what = format!("a frame of {len} bytes, where {MAX_PAYLOAD} are the most");
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
            if rest.len() < HEADER + len {
                if whole.len == 0 && self.bytes.len() <= HEADER + len {
                    self.bytes.resize(HEADER + len + SLACK, 0);
                }
                break;
            }
            whole.len += HEADER + len;
            whole.count += 1;
        }
        Ok(whole)
    }

    async fn receive(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let len = stream.read(&mut self.bytes[self.end..]).await?;
        self.end += len;
        Ok(len)
    }
}
