//! Parsing alone, of `towline_wire`: headers and frames that the engine meets most.

use std::hint::black_box;

use towline_wire::{
    Direction, Frame, Header, PACKET_NUMBER_LEN_BITS, Reader, Side, StreamId, Writer,
    decode_packet_number, parse_header, truncated_packet_number, write_ack, write_short_header,
    write_stream_header,
};

use crate::marker::measured_workload;
use crate::world::MTU;

const CID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// The AEAD's tag, which is gone when frames are parsed.
const TAG_LEN: usize = 16;

/// How often the bytes are parsed.
const TURNS: u64 = 10_000;

/// The short header of a full packet, its packet number, and its one STREAM frame.
pub(crate) fn packet() -> u64 {
    let mut packet = [0; MTU as usize];
    let stream = StreamId::new(Side::Client, Direction::Unidirectional, 0);
    let mut writer = Writer::new(&mut packet);
    write_short_header(&mut writer, &CID, 100_000, 2, false, false);
    write_stream_header(&mut writer, stream, 1 << 28, None, false);
    measured_workload(|| {
        for _ in 0..TURNS {
            black_box(read_packet(black_box(&packet)));
        }
    });
    TURNS
}

fn read_packet(packet: &[u8]) -> (u64, usize) {
    let Ok(Header::Short { pn_offset, end, .. }) = parse_header(packet, CID.len()) else {
        panic!("not the packet that was written");
    };
    // Header protection comes off in between.
    let pn_len = usize::from(packet[0] & PACKET_NUMBER_LEN_BITS) + 1;
    let payload_at = pn_offset + pn_len;
    let truncated = truncated_packet_number(&packet[pn_offset..payload_at]);
    let number = decode_packet_number(truncated, pn_len, Some(99_999));
    let mut reader = Reader::new(&packet[payload_at..end - TAG_LEN]);
    let mut bytes = 0;
    while !reader.is_empty() {
        match Frame::parse(&mut reader) {
            Ok(Frame::Stream(frame)) => bytes += frame.data.len(),
            _ => panic!("not the frame that was written"),
        }
    }
    (number, bytes)
}

/// An ACK frame of `ranges` ranges, each of them taken out.
pub(crate) fn ack(ranges: u64) -> u64 {
    let mut payload = [0; MTU as usize];
    let mut writer = Writer::new(&mut payload);
    // 44 packets, one missing, and so on down.
    let descending = (0..ranges).map(|i| 100_000 - 45 * i - 43..=100_000 - 45 * i);
    assert_eq!(
        write_ack(&mut writer, 25, descending, None) as u64,
        ranges,
        "not all ranges fit"
    );
    let len = writer.len();
    let frame = &payload[..len];
    measured_workload(|| {
        for _ in 0..TURNS {
            black_box(read_ack(black_box(frame)));
        }
    });
    TURNS
}

fn read_ack(payload: &[u8]) -> u64 {
    let mut reader = Reader::new(payload);
    let Ok(Frame::Ack(frame)) = Frame::parse(&mut reader) else {
        panic!("not the frame that was written");
    };
    frame
        .ranges()
        .map(|range| range.end() - range.start() + 1)
        .sum()
}
