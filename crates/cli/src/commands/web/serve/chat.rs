//! The chat of `serve --web`: what one says, everybody hears.
//!
//! A member is a session with one stream. A message is its length in four bytes and then JSON. What
//! a member may say is bounded, and one that does not listen misses messages instead of holding the
//! others up.

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{broadcast, watch};
use towline::webtransport::Session;

/// Cap: bytes of a message that a member sends.
const MAX_MESSAGE: usize = 4096;
/// Cap: messages that wait for a member; the oldest go first.
const MAX_WAITING: usize = 64;
/// Cap: members at a time; further sessions are closed.
const MAX_MEMBERS: usize = 256;
/// Said to one too many.
const FULL: u32 = 1;

/// Everybody.
pub(super) struct Chat {
    said: broadcast::Sender<Words>,
    members: watch::Sender<usize>,
}

/// What a member says.
#[derive(Clone, Deserialize, Serialize)]
struct Words {
    name: String,
    text: String,
}

/// What a member hears.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Heard {
    Said(Words),
    Here { members: usize },
}

impl Chat {
    pub(super) fn new() -> Self {
        Self {
            said: broadcast::Sender::new(MAX_WAITING),
            members: watch::Sender::new(0),
        }
    }

    /// One member, until the stream or the session ends.
    pub(super) async fn serve(&self, session: Session) {
        let Some(_place) = self.place() else {
            session.close(FULL, "the chat is full");
            return;
        };
        let (said, members) = (self.said.subscribe(), self.members.subscribe());
        let Ok((send, recv)) = session.accept_bi().await else {
            return;
        };
        tokio::select! {
            () = self.hear(recv) => {}
            () = tell(send, said, members) => {}
        }
    }

    fn place(&self) -> Option<Place<'_>> {
        let entered = self.members.send_if_modified(|members| {
            let room = *members < MAX_MEMBERS;
            *members += usize::from(room);
            room
        });
        entered.then(|| Place(&self.members))
    }

    async fn hear(&self, mut recv: impl AsyncRead + Unpin) {
        while let Some(words) = next(&mut recv).await {
            // An error says that nobody is here, and that cannot be: we are.
            let _ = self.said.send(words);
        }
    }
}

/// A member's place; dropped, the others are told.
struct Place<'a>(&'a watch::Sender<usize>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|members| *members -= 1);
    }
}

/// The next message; `None` at the end, and when it is none.
async fn next(recv: &mut (impl AsyncRead + Unpin)) -> Option<Words> {
    let mut length = [0; 4];
    recv.read_exact(&mut length).await.ok()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    if length > MAX_MESSAGE {
        return None;
    }
    let mut message = vec![0; length];
    recv.read_exact(&mut message).await.ok()?;
    serde_json::from_slice(&message).ok()
}

async fn tell(
    mut send: impl AsyncWrite + Unpin,
    mut said: broadcast::Receiver<Words>,
    mut members: watch::Receiver<usize>,
) {
    members.mark_changed();
    loop {
        let heard = tokio::select! {
            changed = members.changed() => match changed {
                Ok(()) => Heard::Here { members: *members.borrow_and_update() },
                Err(_) => return,
            },
            words = said.recv() => match words {
                Ok(words) => Heard::Said(words),
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            },
        };
        if send.write_all(&framed(&heard)).await.is_err() {
            return;
        }
    }
}

fn framed(heard: &Heard) -> Vec<u8> {
    // Strings and a number: there is nothing that JSON could not hold.
    let message = serde_json::to_vec(heard).unwrap_or_default();
    let mut framed = (message.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(&message);
    framed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        Words {
            name: "Halyard".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_chat_has_so_many_places_and_one_that_is_left_is_free_again() {
        let chat = Chat::new();
        let mut places: Vec<_> = (0..MAX_MEMBERS).map(|_| chat.place()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(chat.place().is_none());
        places.pop();
        assert!(chat.place().is_some());
    }

    #[test]
    fn a_message_has_its_length_in_front() {
        let framed = framed(&Heard::Said(words("ahoy")));
        assert_eq!(framed[..4], ((framed.len() - 4) as u32).to_be_bytes());
        assert_eq!(
            &framed[4..],
            br#"{"type":"said","name":"Halyard","text":"ahoy"}"#
        );
        let here = super::framed(&Heard::Here { members: 2 });
        assert_eq!(&here[4..], br#"{"type":"here","members":2}"#);
    }

    #[tokio::test]
    async fn a_message_longer_than_allowed_ends_the_stream() {
        for (more, taken) in [(0, true), (1, false)] {
            let empty = serde_json::to_vec(&words("")).unwrap().len();
            let message = serde_json::to_vec(&words(&"x".repeat(MAX_MESSAGE - empty + more)));
            let message = message.unwrap();
            let mut framed = (message.len() as u32).to_be_bytes().to_vec();
            framed.extend_from_slice(&message);
            assert_eq!(next(&mut &framed[..]).await.is_some(), taken);
        }
        for wrong in [&b"\0\0\0"[..], b"\0\0\0\x02{", b"\0\0\0\x02{}"] {
            assert!(next(&mut &wrong[..]).await.is_none());
        }
    }

    #[tokio::test]
    async fn who_does_not_listen_misses_the_oldest() {
        let chat = Chat::new();
        let (said, members) = (chat.said.subscribe(), chat.members.subscribe());
        for number in 0..MAX_WAITING * 2 {
            let _ = chat.said.send(words(&number.to_string()));
        }
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        drop(chat.said);
        tell(ours, said, members).await;
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard.matches("said").count(), MAX_WAITING);
        assert!(heard.contains(&format!("\"{}\"", MAX_WAITING * 2 - 1)));
    }
}
