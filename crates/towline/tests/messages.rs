//! Messages over real sockets on the loopback interface, some through a relay that loses,
//! reorders and slows down.

mod common;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use common::{SECOND, configs, loopback, options, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline::config::Options;
use towline::message::{
    CODE_HEADER_TIMEOUT, CODE_MALFORMED, CODE_RELAY_LOST, FragmentReader, IncomingMessage,
    MAX_MESSAGE_BUFFER, MAX_MESSAGE_METADATA, MAX_MESSAGES_AT_ONCE, MessageError,
    MessageHeaderError, MessageOptions, MessageReceiver, MessageSender, MessageWriter, PipeError,
    Refusal, SendMessageError,
};
use towline::{Connection, Endpoint, SendStream};
use towline_relay::{Relay, RelayConfig};
use towline_wire::{MAX_VARINT, MessageHeader, emit_varint};

/// A connection and what must live as long.
struct Pair {
    near: Connection,
    far: Connection,
    sender: MessageSender,
    receiver: MessageReceiver,
    _endpoints: (Endpoint, Endpoint),
    stop: Arc<AtomicBool>,
}

impl Pair {
    async fn new() -> Self {
        Self::through("").await
    }

    /// Joined by a link of these settings, as `towline relay` takes them.
    async fn through(link: &str) -> Self {
        Self::with(link, &options()).await
    }

    async fn with(link: &str, options: &Options) -> Self {
        let (client, server) = configs(options);
        let server = Endpoint::server(loopback(), server).unwrap();
        let near = Endpoint::client(loopback()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut address = server.local_addr();
        if !link.is_empty() {
            let config = RelayConfig::new(loopback(), address).with_link(link.parse().unwrap());
            let mut relay = Relay::bind(config).unwrap();
            address = relay.local_addr();
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || relay.run(&stop));
        }
        let connect = near.connect(address, "localhost", &client);
        let (client, far) = within(async { tokio::join!(connect, server.accept()) }).await;
        let (client, far) = (client.unwrap(), far.unwrap());
        Self {
            sender: MessageSender::new(&client),
            receiver: MessageReceiver::new(&far),
            near: client,
            far,
            _endpoints: (near, server),
            stop,
        }
    }

    async fn accept(&mut self) -> IncomingMessage {
        within(self.receiver.accept()).await.unwrap()
    }

    async fn open(&self, options: MessageOptions) -> MessageWriter {
        within(self.sender.open(options)).await.unwrap()
    }

    /// A stream of the client's that begins with any bytes.
    async fn raw(&self, bytes: &[u8]) -> SendStream {
        let mut stream = within(self.near.open_uni()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// A whole small message gets through.
    async fn assert_alive(&mut self) {
        self.sender.send("alive", "yes").await.unwrap();
        let message = self.accept().await;
        assert_eq!(message.metadata(), "alive");
        let payload = within(message.read_to_end(10)).await.unwrap();
        assert_eq!(payload, b"yes");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// True if nothing comes of it for a while.
async fn hangs<F: Future>(future: F) -> bool {
    tokio::time::timeout(SECOND / 4, future).await.is_err()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn header(metadata_len: usize, length: Option<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    MessageHeader {
        metadata_len,
        length,
    }
    .emit(&mut out);
    out
}

/// Writes all of a message that may be longer than any buffer, in the background.
fn send_all(writer: MessageWriter, payload: Vec<u8>) -> tokio::task::JoinHandle<()> {
    let mut writer = writer;
    tokio::spawn(async move {
        writer.write_chunk(Bytes::from(payload)).await.unwrap();
        writer.finish().unwrap();
        writer.delivered().await.unwrap();
    })
}

/// Collects fragments, each byte once; also how many came before bytes that were missing.
async fn collect(mut reader: FragmentReader) -> Result<(Vec<u8>, usize), MessageError> {
    let mut got: Vec<Option<u8>> = Vec::new();
    let mut early = 0;
    let mut next = 0;
    while let Some(fragment) = within(reader.next()).await? {
        early += usize::from(fragment.offset > next);
        let start = usize::try_from(fragment.offset).unwrap();
        let end = start + fragment.data.len();
        next = end as u64;
        if got.len() < end {
            got.resize(end, None);
        }
        for (slot, byte) in got[start..end].iter_mut().zip(&fragment.data) {
            assert_eq!(slot.replace(*byte), None, "a byte came twice");
        }
    }
    let got = got.into_iter().map(|byte| byte.expect("a byte is missing"));
    Ok((got.collect(), early))
}

#[tokio::test]
async fn metadata_and_length_are_there_before_the_payload() {
    let mut pair = Pair::new().await;
    let mut writer = pair.open(MessageOptions::new("a chart").length(6)).await;
    let message = pair.accept().await;
    assert_eq!(
        (message.metadata(), message.length()),
        (&Bytes::from("a chart"), Some(6))
    );
    assert_eq!(message.id(), writer.id());
    let mut reader = message.into_reader();
    assert!(hangs(reader.next_chunk()).await, "a payload from nowhere");
    writer.write_all(b"abc").await.unwrap();
    assert_eq!(within(reader.next_chunk()).await.unwrap().unwrap(), "abc");
    assert_eq!(reader.position(), 3);
    writer.write_all(b"def").await.unwrap();
    writer.finish().unwrap();
    assert_eq!(within(reader.read_to_end(3)).await.unwrap(), b"def");
    assert_eq!(reader.next_chunk().await.unwrap(), None);
    within(writer.delivered()).await.unwrap();
}

#[tokio::test]
async fn empty_messages_and_messages_without_a_length_and_large_metadata_pass() {
    let mut pair = Pair::new().await;
    pair.sender.send("", "").await.unwrap();
    let message = pair.accept().await;
    assert_eq!((message.metadata().len(), message.length()), (0, Some(0)));
    assert_eq!(within(message.read_to_end(0)).await.unwrap(), b"");

    let metadata = pattern(MAX_MESSAGE_METADATA);
    let mut writer = pair.open(MessageOptions::new(metadata.clone())).await;
    let mut message = pair.accept().await.into_reader();
    assert_eq!(
        (message.metadata(), message.length()),
        (&Bytes::from(metadata), None)
    );
    // Through tokio's traits, both ends.
    let payload = pattern(3_000_000);
    let copy = async {
        writer.write_all(&payload).await.unwrap();
        AsyncWriteExt::shutdown(&mut writer).await.unwrap();
    };
    let mut got = Vec::new();
    let read = AsyncReadExt::read_to_end(&mut message, &mut got);
    let (_, read) = within(async { tokio::join!(copy, read) }).await;
    assert_eq!(read.unwrap(), payload.len());
    assert!(got == payload);
}

#[tokio::test]
async fn the_senders_own_mistakes_are_told_and_harm_nothing() {
    let mut pair = Pair::new().await;
    let long = MessageOptions::new(vec![0; MAX_MESSAGE_METADATA + 1]);
    let error = pair.sender.open(long).await.unwrap_err();
    assert_eq!(error, SendMessageError::MetadataTooLong { len: 65_537 });
    let endless = MessageOptions::new("").length(u64::MAX);
    let error = pair.sender.open(endless).await.unwrap_err();
    let declared = u64::MAX;
    assert_eq!(error, SendMessageError::ImpossibleLength { declared });

    let mut writer = pair.open(MessageOptions::new("").length(4)).await;
    writer.write_all(b"abc").await.unwrap();
    let declared = 4;
    let short = SendMessageError::TooShort {
        declared,
        written: 3,
    };
    assert_eq!(writer.finish(), Err(short.clone()));
    assert_eq!(writer.delivered().await, Err(short));
    let long = Err(SendMessageError::TooLong { declared });
    assert_eq!(writer.write_all(b"de").await, long);
    assert_eq!(writer.write_chunk("de".into()).await, long);
    writer.write_all(b"d").await.unwrap();
    writer.finish().unwrap();
    let message = pair.accept().await;
    assert_eq!(within(message.read_to_end(4)).await.unwrap(), b"abcd");
    let over = Err(SendMessageError::Closed);
    assert_eq!(writer.write(b"").await.map(|_| ()), Ok(()));
    assert_eq!(writer.finish(), over);
}

#[tokio::test]
async fn an_aborted_message_fails_its_reader_with_the_code_and_a_dropped_writer_aborts() {
    let mut pair = Pair::new().await;
    let mut writer = pair.open(MessageOptions::new("1")).await;
    writer.write_all(b"half").await.unwrap();
    let message = pair.accept().await;
    writer.abort(77);
    let error = within(message.read_to_end(100)).await.unwrap_err();
    assert_eq!(error, MessageError::Aborted(77));
    let writer = pair.open(MessageOptions::new("2")).await;
    let message = pair.accept().await;
    drop(writer);
    let error = within(message.read_to_end(100)).await.unwrap_err();
    assert_eq!(error, MessageError::Aborted(0));
    // The other way round.
    let mut writer = pair.open(MessageOptions::new("3")).await;
    pair.accept().await.stop(78);
    assert_eq!(within(writer.stopped()).await.unwrap(), Some(78));
    let error = writer.write_all(b"x").await.unwrap_err();
    assert_eq!(error, SendMessageError::Stopped(78));
    let mut writer = pair.open(MessageOptions::new("4")).await;
    drop(pair.accept().await.into_fragments());
    assert_eq!(within(writer.stopped()).await.unwrap(), Some(0));
    pair.assert_alive().await;
}

#[tokio::test]
async fn more_or_fewer_bytes_than_declared_are_the_senders_fault_and_cost_only_that_message() {
    let mut pair = Pair::new().await;
    let mut long = pair.raw(&header(0, Some(10))).await;
    let message = pair.accept().await;
    let (one, two) = (message.clone().into_reader(), message.into_fragments());
    long.write_all(&[1; 11]).await.unwrap();
    let fault = MessageError::TooLong { declared: 10 };
    let mut one = one;
    assert_eq!(within(one.read_to_end(100)).await, Err(fault.clone()));
    assert_eq!(collect(two).await.unwrap_err(), fault);
    assert_eq!(within(long.stopped()).await.unwrap(), Some(CODE_MALFORMED));

    let mut short = pair.raw(&header(3, Some(10))).await;
    short.write_all(b"abc123456789").await.unwrap();
    short.finish().unwrap();
    let message = pair.accept().await;
    assert_eq!(message.metadata(), "abc");
    let fault = MessageError::TooShort {
        declared: 10,
        received: 9,
    };
    assert!(fault.to_string().contains("the sender declared 10"));
    assert_eq!(within(message.read_to_end(100)).await, Err(fault));
    pair.assert_alive().await;
}

#[tokio::test]
async fn bad_headers_are_refused_and_counted_and_slow_ones_keep_nobody_waiting() {
    let mut pair = Pair::new().await;
    let mut slow = pair.raw(&header(100, None)[..2]).await;
    let mut other = pair.raw(b"GET / HTTP/1.1\r\n").await;
    let mut metadata = vec![0x6d, 0x4c];
    emit_varint(&mut metadata, MAX_VARINT);
    let mut endless = pair.raw(&metadata).await;
    pair.assert_alive().await;
    assert_eq!(pair.receiver.refused(), 2);
    for stream in [&mut other, &mut endless] {
        let code = within(stream.stopped()).await.unwrap();
        assert_eq!(code, Some(CODE_MALFORMED));
    }
    let mut ended = pair.raw(&header(100, None)).await;
    ended.finish().unwrap();
    let mut reset = pair.raw(&header(100, None)).await;
    reset.reset(5);
    pair.assert_alive().await;
    while pair.receiver.refused() < 4 {
        assert!(hangs(pair.receiver.accept()).await);
    }
    let last = pair.receiver.last_refusal().unwrap();
    let known = [&Refusal::EndsInHeader, &Refusal::Aborted(5)];
    assert!(known.contains(&last), "{last}");
    assert!(
        Refusal::from(MessageHeaderError::UnknownType(7))
            .to_string()
            .contains("0x7")
    );
    // The slow one arrives in the end.
    slow.write_all(&header(100, None)[2..]).await.unwrap();
    slow.write_all(&[9; 100]).await.unwrap();
    slow.finish().unwrap();
    let message = pair.accept().await;
    assert_eq!(message.metadata(), &[9; 100][..]);
}

#[tokio::test]
async fn a_header_that_never_comes_is_given_up() {
    let mut pair = Pair::new().await;
    let mut silent = pair.raw(&[0x6d]).await;
    assert!(hangs(pair.receiver.accept()).await);
    tokio::time::pause();
    tokio::time::advance(towline::message::HEADER_TIMEOUT).await;
    assert!(hangs(pair.receiver.accept()).await);
    tokio::time::resume();
    assert_eq!(pair.receiver.last_refusal(), Some(&Refusal::TimedOut));
    let code = within(silent.stopped()).await.unwrap();
    assert_eq!(code, Some(CODE_HEADER_TIMEOUT));
    pair.assert_alive().await;
}

/// Bytes of address space, which an allocation takes even if it is never touched.
fn address_space() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmSize:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[tokio::test]
async fn hostile_lengths_allocate_nothing() {
    let mut pair = Pair::new().await;
    let before = address_space();
    let mut streams = Vec::new();
    let mut readers = Vec::new();
    for i in 0..40u64 {
        let declared = if i % 2 == 0 { MAX_VARINT } else { 4 << 30 };
        let mut stream = pair.raw(&header(0, Some(declared))).await;
        stream.write_all(b"that's all").await.unwrap();
        streams.push(stream);
        let message = pair.accept().await;
        assert_eq!(message.length(), Some(declared));
        let limit = 1 << 20;
        let refused = message.clone().read_to_end(limit).await;
        let declared = Some(declared);
        assert_eq!(refused, Err(MessageError::OverLimit { declared, limit }));
        let mut reader = message.into_reader();
        assert_eq!(
            within(reader.next_chunk()).await.unwrap().unwrap(),
            "that's all"
        );
        readers.push(reader);
    }
    if let (Some(before), Some(after)) = (before, address_space()) {
        let grown = after.saturating_sub(before);
        assert!(grown < 2 << 30, "{grown} bytes more address space");
    }
}

#[tokio::test]
async fn a_hundred_and_twenty_nine_messages_are_not_held_at_once() {
    let mut pair = Pair::new().await;
    let mut held = Vec::new();
    let mut writers = Vec::new();
    for _ in 0..MAX_MESSAGES_AT_ONCE {
        // Finished streams do not count among those the peer may have open.
        pair.sender.send("m", "").await.unwrap();
        let message = pair.accept().await;
        let mut reader = message.clone().into_reader();
        assert_eq!(within(reader.next_chunk()).await.unwrap(), None);
        held.push(message);
    }
    writers.push(pair.open(MessageOptions::new("one more")).await);
    assert!(hangs(pair.receiver.accept()).await);
    held.pop();
    assert_eq!(pair.accept().await.metadata(), "one more");
    // Full again: the end of the connection is told all the same.
    let last = pair.open(MessageOptions::new("full")).await;
    held.push(pair.accept().await);
    pair.near.close(3, b"bye");
    within(pair.receiver.accept()).await.unwrap_err();
    drop(last);
}

#[tokio::test]
async fn readers_go_their_own_ways_and_the_slowest_holds_the_sender_back() {
    let mut pair = Pair::new().await;
    let payload = pattern(8_000_000);
    let writer = pair.open(MessageOptions::new("").length(8_000_000)).await;
    let sending = send_all(writer, payload.clone());
    let message = pair.accept().await;
    let mut fast = message.clone().into_reader();
    let slow = message.clone().into_reader();
    let fragments = message.into_fragments();
    let mut got = Vec::new();
    while let Ok(chunk) = tokio::time::timeout(SECOND / 2, fast.next_chunk()).await {
        got.extend_from_slice(&chunk.unwrap().expect("not the end"));
    }
    assert_eq!(got.len() as u64, MAX_MESSAGE_BUFFER);
    let sent = pair.near.stats().bytes_sent;
    assert!(sent < 6_000_000, "{sent} sent of 8,000,000");
    assert!(!sending.is_finished());
    // Dropping the ones that do not read lets it go on.
    drop(slow);
    assert!(hangs(fast.next_chunk()).await);
    let (rest, all) = tokio::join!(within(fast.read_to_end(8_000_000)), collect(fragments));
    got.extend_from_slice(&rest.unwrap());
    assert!(got == payload && all.unwrap().0 == payload);
    within(sending).await.unwrap();
}

#[tokio::test]
async fn a_dropped_reader_releases_and_a_clone_starts_where_its_origin_is() {
    let mut pair = Pair::new().await;
    let payload = pattern(4_000_000);
    let writer = pair.open(MessageOptions::new("")).await;
    let sending = send_all(writer, payload.clone());
    let message = pair.accept().await;
    let mut reader = message.clone().into_reader();
    assert!(reader.skip_to(1_500_000).is_ok());
    // `message` stands at the start: nothing of that is pulled.
    assert!(hangs(reader.next_chunk()).await);
    let waiting = tokio::spawn(async move {
        let chunk = reader.next_chunk().await.unwrap().unwrap();
        (reader, chunk)
    });
    tokio::time::sleep(SECOND / 10).await;
    drop(message);
    let (mut reader, chunk) = within(waiting).await.unwrap();
    assert_eq!(chunk[..], payload[1_500_000..][..chunk.len()]);
    let at = reader.position() as usize;
    let mut clone = reader.clone();
    let both = async { tokio::join!(reader.read_to_end(1 << 22), clone.read_to_end(1 << 22)) };
    let (one, two) = within(both).await;
    assert!(one.unwrap() == payload[at..] && two.unwrap() == payload[at..]);
    within(sending).await.unwrap();
}

#[tokio::test]
async fn read_at_looks_ahead_and_says_what_is_out_of_reach() {
    let mut pair = Pair::new().await;
    let payload = pattern(3_000_000);
    let writer = pair.open(MessageOptions::new("").length(3_000_000)).await;
    let sending = send_all(writer, payload.clone());
    let mut reader = pair.accept().await.into_reader();
    let mut out = [0; 1000];
    let n = within(reader.read_at(900_000, &mut out)).await.unwrap();
    assert!(n > 0 && out[..n] == payload[900_000..][..n]);
    assert_eq!(reader.position(), 0);
    let error = within(reader.read_at(2_000_000, &mut out))
        .await
        .unwrap_err();
    let offset = 2_000_000;
    assert_eq!(
        error,
        MessageError::OutOfReach {
            offset,
            position: 0
        }
    );
    reader.skip_to(1_999_999).unwrap();
    let position = 1_999_999;
    let n = within(reader.read_at(2_000_000, &mut out)).await.unwrap();
    assert!(n > 0 && out[..n] == payload[2_000_000..][..n]);
    let released = MessageError::Released {
        offset: 5,
        position,
    };
    assert_eq!(
        within(reader.read_at(5, &mut out)).await,
        Err(released.clone())
    );
    assert_eq!(reader.skip_to(5), Err(released));
    let rest = within(reader.read_to_end(3_000_000)).await.unwrap();
    assert!(rest == payload[1_999_999..]);
    assert_eq!(within(reader.read_at(3_000_000, &mut out)).await, Ok(0));
    within(sending).await.unwrap();
}

const ROUGH: &str = "rate=40mbit,delay=5ms,loss=3%,reorder=5%,dup=2%";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_come_as_they_arrive_and_every_reader_gets_each_byte_once() {
    let mut pair = Pair::through(ROUGH).await;
    let payload = pattern(2_000_000);
    let writer = pair.open(MessageOptions::new("").length(2_000_000)).await;
    let sending = send_all(writer, payload.clone());
    let message = pair.accept().await;
    let in_order = message.clone().read_to_end(2_000_000);
    let mut chunks = message.clone().into_reader();
    let small_steps = async move {
        let mut got = Vec::new();
        let mut step = [0; 1777];
        loop {
            match chunks.read(&mut step).await.unwrap() {
                0 => return got,
                n => got.extend_from_slice(&step[..n]),
            }
        }
    };
    let early = collect(message.into_fragments());
    let all = async { tokio::join!(in_order, small_steps, early) };
    let (in_order, small_steps, early) = within(all).await;
    let (any_order, early) = early.unwrap();
    assert!(
        early > 20,
        "only {early} fragments came before what was missing"
    );
    assert!(in_order.unwrap() == payload && small_steps == payload && any_order == payload);
    within(sending).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_messages_of_many_tasks_reach_all_their_readers() {
    const TASKS: usize = 8;
    const EACH: usize = 40;
    let mut pair = Pair::new().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let sender = pair.sender.clone();
        tasks.spawn(async move {
            for i in 0..EACH {
                let len = (task * 7919 + i * 104_729) % 150_000;
                let payload = pattern(len);
                let options = MessageOptions::new(len.to_string()).priority(task as i64 % 3);
                let mut writer = sender.open(options).await.unwrap();
                for piece in payload.chunks(1 + len / (1 + i % 4)) {
                    writer.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                writer.finish().unwrap();
            }
        });
    }
    for i in 0..TASKS * EACH {
        let message = pair.accept().await;
        let len: usize = String::from_utf8_lossy(message.metadata()).parse().unwrap();
        for reader in 0..3 {
            let message = message.clone();
            tasks.spawn(async move {
                let got = match (i + reader) % 3 {
                    0 => collect(message.into_fragments()).await.unwrap().0,
                    1 => within(message.read_to_end(len)).await.unwrap(),
                    _ => {
                        let mut reader = message.into_reader();
                        let mut got = Vec::new();
                        let mut step = vec![0; 1 + len / 3];
                        loop {
                            let at = reader.position();
                            let n = within(reader.read_at(at, &mut step)).await.unwrap();
                            reader.skip_to(at + n as u64).unwrap();
                            got.extend_from_slice(&step[..n]);
                            if n == 0 {
                                break got;
                            }
                        }
                    }
                };
                assert!(got == pattern(len), "message {i}, reader {reader}");
            });
        }
    }
    within(async { while tasks.join_next().await.transpose().unwrap().is_some() {} }).await;
}

/// Forwards one message of `from` over `to`.
fn forward(
    from: &mut Pair,
    to: &Pair,
    message: IncomingMessage,
) -> tokio::task::JoinHandle<Result<u64, PipeError>> {
    let _ = from;
    let next = to.near.clone();
    tokio::spawn(async move { message.pipe_to(&next).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_keeps_bytes_and_metadata_over_two_rough_links_without_putting_them_in_order() {
    let mut first = Pair::through(ROUGH).await;
    let mut second = Pair::through("rate=60mbit,delay=3ms,loss=1%,reorder=2%").await;
    for declared in [Some(1_500_000), None] {
        let payload = pattern(1_500_000);
        let options = MessageOptions::new("forward me");
        let options = match declared {
            Some(length) => options.length(length),
            None => options,
        };
        let sending = send_all(first.open(options).await, payload.clone());
        let message = first.accept().await;
        let own = message.clone().read_to_end(1_500_000);
        let pipe = forward(&mut first, &second, message);
        let message = second.accept().await;
        assert_eq!(
            (message.metadata(), message.length()),
            (&Bytes::from("forward me"), declared)
        );
        let all = async { tokio::join!(collect(message.into_fragments()), own, pipe) };
        let (got, own, piped) = within(all).await;
        let (got, early) = got.unwrap();
        assert!(got == payload && own.unwrap() == payload);
        assert_eq!(piped.unwrap(), Ok(1_500_000));
        assert!(
            early > 10,
            "only {early} fragments came before what was missing"
        );
        within(sending).await.unwrap();
    }
    first.assert_alive().await;
    second.assert_alive().await;
}

#[tokio::test]
async fn a_slow_next_node_holds_the_first_sender_back() {
    // Windows that do not grow: how far they would depends on how busy the machine is.
    let mut fixed = options();
    fixed.transport.max_stream_receive_window = fixed.transport.stream_receive_window;
    fixed.transport.max_receive_window = fixed.transport.receive_window;
    let mut first = Pair::with("", &fixed).await;
    let mut second = Pair::with("", &fixed).await;
    let payload = pattern(12_000_000);
    let writer = first.open(MessageOptions::new("").length(12_000_000)).await;
    let sending = send_all(writer, payload.clone());
    let message = first.accept().await;
    let pipe = forward(&mut first, &second, message);
    let mut reader = second.accept().await.into_reader();
    tokio::time::sleep(SECOND).await;
    let sent = first.near.stats().bytes_sent;
    assert!(sent < 8_000_000, "{sent} sent, and nobody reads");
    assert!(!sending.is_finished() && !pipe.is_finished());
    let got = within(reader.read_to_end(12_000_000)).await.unwrap();
    assert!(got == payload);
    assert_eq!(within(pipe).await.unwrap(), Ok(12_000_000));
    within(sending).await.unwrap();
}

#[tokio::test]
async fn aborts_go_through_a_pipe_with_their_codes_in_both_directions() {
    let mut first = Pair::new().await;
    let mut second = Pair::new().await;
    // From the sender: while the pipe waits for more, and while it waits for room.
    for len in [1000, 10_000_000] {
        let mut writer = first.open(MessageOptions::new("").length(20_000_000)).await;
        let payload = pattern(len);
        let write = writer.write_all(&payload);
        let stuck = tokio::time::timeout(SECOND, write).await.is_err();
        let message = first.accept().await;
        let pipe = forward(&mut first, &second, message);
        let message = second.accept().await;
        if stuck {
            let write = writer.write_all(&payload[5_000_000..]);
            let _ = tokio::time::timeout(SECOND / 2, write).await;
        }
        tokio::time::sleep(SECOND / 10).await;
        writer.abort(41);
        let incoming = Err(PipeError::Incoming(MessageError::Aborted(41)));
        assert_eq!(within(pipe).await.unwrap(), incoming);
        let error = within(message.read_to_end(20_000_000)).await.unwrap_err();
        assert_eq!(error, MessageError::Aborted(41));
    }
    // From the receiver, likewise.
    for len in [1000, 10_000_000] {
        let mut writer = first.open(MessageOptions::new("").length(20_000_000)).await;
        let payload = pattern(len);
        let write = writer.write_all(&payload);
        let _ = tokio::time::timeout(SECOND / 2, write).await;
        let message = first.accept().await;
        let pipe = forward(&mut first, &second, message);
        let message = second.accept().await;
        tokio::time::sleep(SECOND / 10).await;
        message.stop(42);
        let outgoing = Err(PipeError::Outgoing(SendMessageError::Stopped(42)));
        assert_eq!(within(pipe).await.unwrap(), outgoing);
        assert_eq!(within(writer.stopped()).await.unwrap(), Some(42));
    }
    // A broken declaration, and a pipe that somebody else reads beside.
    let mut long = first.raw(&header(0, Some(2))).await;
    let message = first.accept().await;
    let pipe = forward(&mut first, &second, message);
    let message = second.accept().await;
    long.write_all(b"abc").await.unwrap();
    let error = within(message.read_to_end(10)).await.unwrap_err();
    assert_eq!(error, MessageError::Aborted(CODE_MALFORMED));
    assert!(within(pipe).await.unwrap().is_err());

    let mut writer = first.open(MessageOptions::new("")).await;
    let message = first.accept().await;
    let mut beside = message.clone().into_reader();
    let pipe = forward(&mut first, &second, message);
    second.accept().await.stop(43);
    assert!(within(pipe).await.unwrap().is_err());
    writer.write_all(b"goes on").await.unwrap();
    writer.finish().unwrap();
    assert_eq!(within(beside.read_to_end(100)).await.unwrap(), b"goes on");

    // A lost connection on either side.
    let mut writer = first.open(MessageOptions::new("")).await;
    let message = first.accept().await;
    let pipe = forward(&mut first, &second, message);
    let message = second.accept().await;
    second.far.close(9, b"gone");
    assert!(matches!(
        within(pipe).await.unwrap(),
        Err(PipeError::Outgoing(SendMessageError::ConnectionLost(_)))
    ));
    assert_eq!(
        within(writer.stopped()).await.unwrap(),
        Some(CODE_RELAY_LOST)
    );
    drop(message);
    first.assert_alive().await;

    let mut third = Pair::new().await;
    let _writer = first.open(MessageOptions::new("")).await;
    let message = first.accept().await;
    let pipe = forward(&mut first, &third, message);
    let message = third.accept().await;
    first.near.close(9, b"gone");
    let error = within(message.read_to_end(10)).await.unwrap_err();
    assert_eq!(error, MessageError::Aborted(CODE_RELAY_LOST));
    assert!(within(pipe).await.unwrap().is_err());
    third.assert_alive().await;
}

#[tokio::test]
async fn an_urgent_message_overtakes() {
    let mut pair = Pair::through("rate=8mbit,delay=5ms").await;
    let options = MessageOptions::new("bulk").length(1_500_000);
    let bulk = send_all(pair.open(options).await, pattern(1_500_000));
    let mut message = pair.accept().await.into_reader();
    let bulk_read = tokio::spawn(async move { message.read_to_end(1_500_000).await });
    tokio::time::sleep(SECOND / 10).await;
    let options = MessageOptions::new("urgent").length(200_000).priority(10);
    let urgent = send_all(pair.open(options).await, pattern(200_000));
    let message = pair.accept().await;
    assert_eq!(message.metadata(), "urgent");
    let got = within(message.read_to_end(200_000)).await.unwrap();
    assert!(got == pattern(200_000));
    assert!(!bulk_read.is_finished());
    within(urgent).await.unwrap();
    let got = within(bulk_read).await.unwrap().unwrap();
    assert!(got == pattern(1_500_000));
    within(bulk).await.unwrap();
}
