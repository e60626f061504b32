//! [`Script`]: the steps of an input.
//!
//! A step is a byte that says what happens, one that says to which of the things there are, and
//! behind it a number or bytes where the step has them. The highest bit of the first byte says that
//! the next step comes before the server looks.

use towline_wire::{Reader, emit_varint};

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    // The client.
    Open,
    Bytes,
    Finish,
    Reset,
    Stop,
    Take,
    Permit,
    Datagram,
    /// Whole frames, capsules and prefixes.
    Settings,
    Head,
    Frame,
    Capsule,
    OpenPrefixed,
    SessionDatagram,
    // The server's application: sessions and their streams.
    Accept,
    Refuse,
    Close,
    Drain,
    OpenStream,
    Write,
    EndStream,
    ResetStream,
    Read,
    StopStream,
    SendDatagram,
    // Requests and the connection.
    Respond,
    WriteBody,
    ReadBody,
    Trailers,
    EndBody,
    Cancel,
    StopReading,
    AnnounceEnd,
    GoAway,
    CloseConnection,
}

/// By the numbers they have in an input.
const STEPS: [What; 35] = [
    What::Open,
    What::Bytes,
    What::Finish,
    What::Reset,
    What::Stop,
    What::Take,
    What::Permit,
    What::Datagram,
    What::Settings,
    What::Head,
    What::Frame,
    What::Capsule,
    What::OpenPrefixed,
    What::SessionDatagram,
    What::Accept,
    What::Refuse,
    What::Close,
    What::Drain,
    What::OpenStream,
    What::Write,
    What::EndStream,
    What::ResetStream,
    What::Read,
    What::StopStream,
    What::SendDatagram,
    What::Respond,
    What::WriteBody,
    What::ReadBody,
    What::Trailers,
    What::EndBody,
    What::Cancel,
    What::StopReading,
    What::AnnounceEnd,
    What::GoAway,
    What::CloseConnection,
];

/// Says that the server does not look yet.
const MORE: u8 = 0x80;

/// What stands behind the two bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Nothing,
    Number,
    Bytes,
}

impl What {
    fn tail(self) -> Tail {
        match self {
            Self::Bytes
            | Self::Datagram
            | Self::Frame
            | Self::Capsule
            | Self::OpenPrefixed
            | Self::SessionDatagram => Tail::Bytes,
            Self::Reset
            | Self::Stop
            | Self::Settings
            | Self::Head
            | Self::Accept
            | Self::Refuse
            | Self::Close
            | Self::Write
            | Self::ResetStream
            | Self::Read
            | Self::StopStream
            | Self::SendDatagram
            | Self::WriteBody
            | Self::ReadBody
            | Self::Cancel
            | Self::StopReading => Tail::Number,
            _ => Tail::Nothing,
        }
    }
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step<'a> {
    pub(super) what: What,
    /// To which, among as many as there are.
    pub(super) at: u8,
    pub(super) number: u64,
    pub(super) bytes: &'a [u8],
    /// The next step follows before the server looks.
    pub(super) more: bool,
}

impl<'a> Step<'a> {
    /// A step without a number and bytes.
    pub(super) fn of(what: What, at: u8) -> Self {
        Self {
            what,
            at,
            number: 0,
            bytes: &[],
            more: false,
        }
    }

    pub(super) fn with_number(what: What, at: u8, number: u64) -> Self {
        Self {
            number,
            ..Self::of(what, at)
        }
    }

    #[cfg(test)]
    pub(super) fn with_bytes(what: What, at: u8, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            ..Self::of(what, at)
        }
    }

    /// Appends the step to a script. Of `bytes` there are 255 at most.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let number = STEPS.iter().position(|what| *what == self.what);
        let first = number.unwrap_or_default() as u8;
        out.push(first | if self.more { MORE } else { 0 });
        out.push(self.at);
        match self.what.tail() {
            Tail::Nothing => {}
            Tail::Number => emit_varint(out, self.number),
            Tail::Bytes => {
                out.push(self.bytes.len() as u8);
                out.extend_from_slice(self.bytes);
            }
        }
    }
}

/// What an input says.
pub(super) struct Script<'a>(Reader<'a>);

impl<'a> Script<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self(Reader::new(input))
    }

    /// The first two bytes.
    pub(super) fn head(&mut self) -> [u8; 2] {
        [self.0.u8().unwrap_or(0x0f), self.0.u8().unwrap_or(0xff)]
    }

    pub(super) fn next(&mut self) -> Option<Step<'a>> {
        let first = self.0.u8().ok()?;
        let at = self.0.u8().ok()?;
        let what = STEPS[usize::from(first & !MORE) % STEPS.len()];
        let mut step = Step::of(what, at);
        step.more = first & MORE != 0;
        match what.tail() {
            Tail::Nothing => {}
            Tail::Number => step.number = self.0.varint().ok()?,
            Tail::Bytes => {
                let len = usize::from(self.0.u8().ok()?).min(self.0.remaining());
                step.bytes = self.0.bytes(len).ok()?;
            }
        }
        Some(step)
    }
}
