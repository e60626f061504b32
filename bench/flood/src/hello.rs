//! A genuine hello, taken from a client of ours, and any number of others made from it.

use std::time::Duration;

use rustls::Side;
use rustls::quic::{Keys, Version};
use tokio::net::UdpSocket;
use towline::Endpoint;
use towline::identity::initial_suite;
use towline_wire::{Header, LongType, QUIC_V1, Writer, parse_header, write_long_header};

use crate::{Outcome, SERVER_NAME, client_config};

/// Bytes an AEAD adds.
const TAG_LEN: usize = 16;
/// Bytes of a packet number here.
const PN_LEN: usize = 4;
/// RFC 9000 §14.1.
pub(crate) const DATAGRAM: usize = 1200;

/// What a hello says, out of its packet.
#[derive(Clone)]
pub(crate) struct Template {
    payload: Vec<u8>,
    /// The ID it names: with another one the handshake would fail.
    scid: Vec<u8>,
    suite: rustls::quic::Suite,
}

impl Template {
    /// Has a client say hello to a socket of ours.
    pub(crate) async fn capture() -> Outcome<Self> {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).await?;
        let to = socket.local_addr()?;
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
        let config = client_config(0)?;
        let attempt = tokio::spawn(async move {
            let _ = endpoint.connect(to, SERVER_NAME, &config).await;
        });
        let mut datagram = vec![0; 2048];
        let patience = Duration::from_secs(5);
        let len = tokio::time::timeout(patience, socket.recv(&mut datagram)).await??;
        datagram.truncate(len);
        attempt.abort();
        Self::of(datagram)
    }

    fn of(mut datagram: Vec<u8>) -> Outcome<Self> {
        let Ok(Header::Long {
            kind: LongType::Initial,
            dcid,
            scid,
            pn_offset,
            end,
            ..
        }) = parse_header(&datagram, 8)
        else {
            return Err("a client began with something else than an Initial".into());
        };
        let suite = initial_suite(&rustls::crypto::aws_lc_rs::default_provider());
        let keys = suite.keys(&dcid, Side::Server, Version::V1);
        let (head, rest) = datagram[..end].split_at_mut(pn_offset + PN_LEN);
        let (first, number) = head.split_first_mut().ok_or("an empty packet")?;
        let number = &mut number[pn_offset - 1..];
        let sample = rest[..TAG_LEN].to_vec();
        let header_key = &keys.remote.header;
        header_key.decrypt_in_place(&sample, first, number)?;
        let pn_len = usize::from(*first & 3) + 1;
        let number = number[..pn_len]
            .iter()
            .fold(0, |n, byte| n << 8 | u64::from(*byte));
        let (header, payload) = datagram[..end].split_at_mut(pn_offset + pn_len);
        let packet_key = &keys.remote.packet;
        let payload = packet_key
            .decrypt_in_place(number, header, payload)?
            .to_vec();
        // Without the padding, whose length depends on the token.
        let padding = payload.iter().rev().take_while(|byte| **byte == 0).count();
        Ok(Self {
            payload: payload[..payload.len() - padding].to_vec(),
            scid: scid.to_vec(),
            suite,
        })
    }

    /// The same hello as a first packet to `dcid`.
    pub(crate) fn packet(&self, dcid: &[u8], token: &[u8]) -> Outcome<Vec<u8>> {
        let keys = self.suite.keys(dcid, Side::Client, Version::V1);
        self.seal(&keys, dcid, token)
    }

    fn seal(&self, keys: &Keys, dcid: &[u8], token: &[u8]) -> Outcome<Vec<u8>> {
        let mut packet = vec![0; DATAGRAM];
        let kind = LongType::Initial;
        let mut w = Writer::new(&mut packet);
        let slot = write_long_header(&mut w, kind, QUIC_V1, dcid, &self.scid, token, 0, PN_LEN);
        let header_len = w.len();
        w.bytes(&self.payload);
        if w.overflowed() || w.len() + TAG_LEN > DATAGRAM {
            return Err("the hello and its token do not fit one datagram".into());
        }
        slot.patch(&mut packet, DATAGRAM - slot.pn_offset());
        let (header, rest) = packet.split_at_mut(header_len);
        let (payload, room) = rest.split_at_mut(DATAGRAM - header_len - TAG_LEN);
        let tag = keys.local.packet.encrypt_in_place(0, header, payload)?;
        room.copy_from_slice(tag.as_ref());
        let (head, rest) = packet.split_at_mut(header_len);
        let (first, number) = head.split_first_mut().ok_or("an empty packet")?;
        let number = &mut number[header_len - PN_LEN - 1..];
        let header_key = &keys.local.header;
        header_key.encrypt_in_place(&rest[..TAG_LEN], first, number)?;
        Ok(packet)
    }
}
