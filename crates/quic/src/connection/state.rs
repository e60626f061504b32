//! Where a connection is in its life, and every transition (RFC 9000 §10.2).
//!
//! handshaking → established → confirmed → closing or draining → drained. Owns the
//! CONNECTION_CLOSE to be sent and the reason why the connection ended; timers and keys are others'.

use towline_wire::{CloseFrame, FrameType, TransportErrorCode};

use crate::error::{Close, ConnectionError, Violation};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Handshaking,
    /// The TLS handshake is complete.
    Established,
    /// RFC 9001 §4.1.2.
    Confirmed,
    /// We closed and answer packets with CONNECTION_CLOSE.
    Closing,
    /// The peer closed: we send nothing.
    Draining,
    Drained,
}

/// A CONNECTION_CLOSE to be sent.
#[derive(Clone, Debug)]
struct OwnClose {
    code: u64,
    /// `None`: by the application.
    frame: Option<u64>,
    reason: Vec<u8>,
}

/// Cap: bytes of our own close reason put on the wire.
pub(crate) const MAX_CLOSE_REASON: usize = 512;

#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: Phase,
    close: Option<Box<OwnClose>>,
    close_due: bool,
    received_since_close: u64,
    close_reason: Option<Box<ConnectionError>>,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Handshaking,
            close: None,
            close_due: false,
            received_since_close: 0,
            close_reason: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Frames may be exchanged.
    pub(crate) fn is_open(&self) -> bool {
        self.phase < Phase::Closing
    }

    pub(crate) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established | Phase::Confirmed)
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.phase == Phase::Confirmed
    }

    /// Why the connection ended.
    pub(crate) fn close_reason(&self) -> Option<&ConnectionError> {
        self.close_reason.as_deref()
    }

    pub(crate) fn establish(&mut self) {
        if self.phase == Phase::Handshaking {
            self.phase = Phase::Established;
        }
    }

    pub(crate) fn confirm(&mut self) {
        if self.phase == Phase::Established {
            self.phase = Phase::Confirmed;
        }
    }

    /// The application closes.
    /// The reason is the application's, UTF-8 or not (RFC 9000 §19.19).
    pub(crate) fn close_by_application(&mut self, code: u64, reason: &[u8]) -> bool {
        self.begin_close(
            OwnClose {
                code,
                frame: None,
                reason: reason[..reason.len().min(MAX_CLOSE_REASON)].to_vec(),
            },
            ConnectionError::ClosedLocally,
        )
    }

    /// The peer broke the protocol.
    pub(crate) fn close_for(&mut self, violation: &Violation) -> bool {
        self.begin_close(
            OwnClose {
                code: violation.code.as_u64(),
                frame: Some(violation.frame.map_or(0, FrameType::as_u64)),
                reason: violation.what.as_bytes().to_vec(),
            },
            ConnectionError::PeerMisbehaved {
                code: violation.code,
                frame: violation.frame,
                what: violation.what,
            },
        )
    }

    /// We cannot go on, for this reason.
    pub(crate) fn close_with(&mut self, code: TransportErrorCode, reason: ConnectionError) -> bool {
        self.begin_close(
            OwnClose {
                code: code.as_u64(),
                frame: Some(0),
                reason: Vec::new(),
            },
            reason,
        )
    }

    fn begin_close(&mut self, close: OwnClose, reason: ConnectionError) -> bool {
        if !self.is_open() {
            return false;
        }
        self.phase = Phase::Closing;
        self.close = Some(Box::new(close));
        self.close_due = true;
        self.close_reason = Some(Box::new(reason));
        true
    }

    /// The peer's CONNECTION_CLOSE. Returns whether this was news to the application.
    pub(crate) fn on_peer_close(&mut self, frame: &CloseFrame<'_>) -> bool {
        let close = match frame.frame_type {
            Some(frame_type) => Close::Transport {
                code: TransportErrorCode::from_u64(frame.error_code),
                frame: (frame_type != 0).then(|| FrameType::from_u64(frame_type)),
                reason: frame.reason_text(),
            },
            None => Close::Application {
                code: frame.error_code,
                reason: frame.reason[..frame.reason.len().min(CloseFrame::MAX_REASON_TEXT)]
                    .to_vec(),
            },
        };
        self.drain(ConnectionError::ClosedByPeer(close))
    }

    /// Goes silent: the peer closed, was lost, or gave a stateless reset.
    pub(crate) fn drain(&mut self, reason: ConnectionError) -> bool {
        if self.phase >= Phase::Draining {
            return false;
        }
        let news = self.is_open();
        self.phase = Phase::Draining;
        self.close_due = false;
        self.close_reason.get_or_insert_with(|| Box::new(reason));
        news
    }

    /// Ends at once (timeouts need no closing period).
    pub(crate) fn finish(&mut self, reason: ConnectionError) -> bool {
        let news = self.is_open();
        self.close_reason.get_or_insert_with(|| Box::new(reason));
        self.phase = Phase::Drained;
        self.close_due = false;
        news
    }

    /// The closing or draining period is over.
    pub(crate) fn on_period_over(&mut self) {
        self.phase = Phase::Drained;
        self.close_due = false;
    }

    /// A packet arrived while closing: answer every time their number doubles (RFC 9000 §10.2.1).
    pub(crate) fn on_packet_while_closing(&mut self) {
        self.received_since_close += 1;
        if self.phase == Phase::Closing && self.received_since_close.is_power_of_two() {
            self.close_due = true;
        }
    }

    pub(crate) fn is_close_due(&self) -> bool {
        self.close_due
    }

    pub(crate) fn on_close_sent(&mut self) {
        self.close_due = false;
    }

    /// The frame for a packet; an application's reason does not go into handshake packets
    /// (RFC 9000 §10.2.3).
    pub(crate) fn close_frame(&self, one_rtt: bool) -> Option<CloseFrame<'_>> {
        let close = self.close.as_ref()?;
        Some(match close.frame {
            Some(frame) => CloseFrame::transport(
                TransportErrorCode::from_u64(close.code),
                frame,
                &close.reason,
            ),
            None if one_rtt => CloseFrame::application(close.code, &close.reason),
            None => CloseFrame::transport(TransportErrorCode::APPLICATION_ERROR, 0, b""),
        })
    }
}
