//! What the streams between Towline's commands are for, and how a client opens a transfer.
//!
//! Every stream begins with a varint that says what it is for: one of the transfer's, or of these.

use towline::{Connection, RecvStream, SendStream};
use towline_transfer::{OpenError, Opening, open};

use crate::exit::{Exit, Failure};
use crate::failures::connection_failure;
use crate::summary::refused;

/// The application protocol of all Towline commands.
pub(crate) const ALPN: &[u8] = b"towline/1";

/// Bidirectional: everything after the kind comes back.
pub(crate) const ECHO: u64 = 0x1;
/// Bidirectional: control of a performance measurement.
pub(crate) const PERF: u64 = 0x2;

/// Opens a transfer session: the control stream, what it is for, and the server's consent.
pub(crate) async fn open_session(
    connection: &Connection,
    kind: u64,
    opening: Opening,
) -> Result<(RecvStream, SendStream), Failure> {
    let (mut send, mut recv) = match connection.open_bi().await {
        Ok(streams) => streams,
        Err(error) => return Err(connection_failure(&error)),
    };
    let Err(error) = open((&mut recv, &mut send), kind, opening).await else {
        return Ok((recv, send));
    };
    Err(match error {
        OpenError::Refused(refusal) => refused(refusal.reason, refusal.to_string()),
        OpenError::Unexpected | OpenError::Malformed(_) => {
            Failure::new(Exit::Protocol, error.to_string())
        }
        OpenError::NotOffered => Failure::new(Exit::Other, error.to_string()),
        OpenError::Lost(_) => match connection.close_reason() {
            Some(reason) => connection_failure(&reason),
            None => Failure::new(Exit::Other, OpenError::NotOffered.to_string()),
        },
    })
}
