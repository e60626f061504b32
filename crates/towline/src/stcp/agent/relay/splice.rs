//! Copies between a clear stream on this machine and a session over the network, both ways.
//!
//! One task, no allocation while bytes flow: what the program wrote is sealed from a buffer of the
//! thread, and what the peer sent is opened into it. A side that does not read stops the other.
//! close_notify and FIN stand for each other; a cut is passed on as a cut.

use std::cell::RefCell;
use std::io;

use bytes::{Buf, BytesMut};
use tokio::net::TcpStream;
use towline_stcp::{Read, Session};

/// What is moved at once.
const BUFFER: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// Copies until both ways have ended.
///
/// # Errors
/// When either stream is cut off.
pub(super) async fn splice(
    clear: &TcpStream,
    secure: &TcpStream,
    session: Session,
) -> io::Result<()> {
    let mut splice = Splice {
        clear,
        secure,
        session,
        opened: BytesMut::new(),
        clear_ended: false,
        secure_ended: false,
        fin_due: false,
        wants_record: false,
    };
    loop {
        while splice.turn()? {
            // Other connections of this thread come first now and then.
            tokio::task::consume_budget().await;
        }
        if splice.is_over() {
            return Ok(());
        }
        splice.wait().await?;
    }
}

struct Splice<'s> {
    clear: &'s TcpStream,
    secure: &'s TcpStream,
    session: Session,
    /// Opened, and not taken by the program yet.
    opened: BytesMut,
    /// The program ended its stream.
    clear_ended: bool,
    /// The peer ended its stream.
    secure_ended: bool,
    /// FIN follows close_notify once that is sent.
    fin_due: bool,
    /// No whole record is there.
    wants_record: bool,
}

impl Splice<'_> {
    fn is_over(&mut self) -> bool {
        self.clear_ended
            && self.secure_ended
            && !self.fin_due
            && self.opened.is_empty()
            && self.session.output().is_empty()
    }

    /// Moves what can be moved; whether anything was.
    fn turn(&mut self) -> io::Result<bool> {
        let sealed = self.seal()?;
        let sent = self.send()?;
        let opened = self.open()?;
        Ok(sealed || sent || opened)
    }

    /// The program's bytes into records.
    fn seal(&mut self) -> io::Result<bool> {
        if self.clear_ended || !self.session.output().is_empty() {
            return Ok(false);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let Some(len) = nonblocking(self.clear.try_read(scratch))? else {
                return Ok(false);
            };
            if len == 0 {
                self.clear_ended = true;
                self.session.close_write();
                self.fin_due = true;
                return Ok(true);
            }
            // The output was empty, so there is room for all of it.
            let taken = self.session.write(&scratch[..len])?;
            if taken < len {
                return Err(io::Error::other("a session took less than it has room for"));
            }
            Ok(true)
        })
    }

    /// Records to the peer.
    fn send(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while !self.session.output().is_empty() {
            let Some(len) = nonblocking(self.secure.try_write(self.session.output()))? else {
                return Ok(moved);
            };
            self.session.on_sent(len);
            moved = true;
        }
        if self.fin_due {
            self.fin_due = false;
            shutdown_write(self.secure)?;
        }
        Ok(moved)
    }

    /// Records of the peer to the program.
    fn open(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while !self.opened.is_empty() {
            let Some(len) = nonblocking(self.clear.try_write(&self.opened))? else {
                return Ok(moved);
            };
            self.opened.advance(len);
            moved = true;
        }
        if self.secure_ended {
            return Ok(moved);
        }
        self.opened = BytesMut::new();
        if self.wants_record {
            match nonblocking(self.secure.try_read_buf(self.session.receive_buffer()))? {
                None => return Ok(moved),
                Some(0) => self.session.handle_eof()?,
                Some(_) => {}
            }
            self.wants_record = false;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            match self.session.read(scratch)? {
                Read::Wanting => self.wants_record = true,
                Read::End => {
                    self.secure_ended = true;
                    shutdown_write(self.clear)?;
                }
                Read::Data(len) => {
                    let written = nonblocking(self.clear.try_write(&scratch[..len]))?.unwrap_or(0);
                    self.opened.extend_from_slice(&scratch[written..len]);
                }
            }
            Ok(true)
        })
    }

    /// Waits until a turn can move something.
    async fn wait(&mut self) -> io::Result<()> {
        self.session.trim();
        let output = !self.session.output().is_empty();
        let seal = !self.clear_ended && !output;
        let opened = !self.opened.is_empty();
        let record = !self.secure_ended && !opened;
        tokio::select! {
            ready = self.clear.readable(), if seal => ready,
            ready = self.secure.writable(), if output => ready,
            ready = self.clear.writable(), if opened => ready,
            ready = self.secure.readable(), if record => ready,
        }
    }
}

fn nonblocking(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn shutdown_write(stream: &TcpStream) -> io::Result<()> {
    match socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write) {
        // The other end has closed already; what is left of its stream will tell.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}
