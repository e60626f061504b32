//! Lines of JSON, as source and as sink.

mod common;

use common::{Scratch, entries, next, record, stream};
use towline_gateway::{Entry, Kind, LinesOptions, Ranges, Sink, Source};
use towline_link::codec::MAX_TEXT;

#[tokio::test]
async fn a_bad_line_is_counted_with_its_number_and_the_next_is_read() {
    let text = b"{\"a\":1}\n\n[1]\nnonsense\r\n{\"b\":2}\r\n{\"c\":3}".as_slice();
    let mut source = Source::json_lines(text);
    assert_eq!(next(&mut source).await, record(r#"{"a":1}"#));
    assert_eq!(next(&mut source).await, record(r#"{"b":2}"#));
    assert_eq!(next(&mut source).await, record(r#"{"c":3}"#));
    assert_eq!(source.next().await.unwrap(), None);
    assert_eq!(source.next().await.unwrap(), None);
    let counts = source.counts();
    assert_eq!((counts.records, counts.malformed), (3, 2));
    let last = counts.last_malformed.unwrap();
    assert!(last.starts_with("line 4: "), "{last}");
}

#[tokio::test]
async fn a_line_over_the_limit_is_skipped() {
    let text = format!("{{\"a\":\"{}\"}}\n{{\"b\":1}}\n", "x".repeat(2 * MAX_TEXT));
    let mut source = Source::json_lines(std::io::Cursor::new(text));
    assert_eq!(next(&mut source).await, record(r#"{"b":1}"#));
    let why = source.counts().last_malformed.unwrap();
    assert!(why.contains("line 1: it has 2097160 bytes"), "{why}");
}

#[tokio::test]
async fn a_source_that_nobody_reads_reads_no_further_than_its_queue() {
    let text = "{\"a\":1}\n".repeat(1000);
    let source = Source::json_lines(std::io::Cursor::new(text));
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let records = source.counts().records;
    // One more waits to be let in.
    assert!((16..=17).contains(&records), "{records}");
}

#[tokio::test]
async fn a_reader_that_fails_ends_the_source_with_the_reason() {
    struct Broken;
    impl tokio::io::AsyncRead for Broken {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::Error::other("the cable is out")))
        }
    }
    let mut source = Source::json_lines(Broken);
    let error = source.next().await.unwrap_err().to_string();
    assert!(error.contains("the cable is out"), "{error}");
    assert_eq!(source.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_file_has_every_record_and_its_number_when_asked_for() {
    let scratch = Scratch::new();
    let boat = stream("a\"b", 255);
    let path = scratch.path().join("plain");
    let mut sink = Sink::file(path.clone(), LinesOptions::default());
    assert_eq!(sink.kind(), Kind::Log);
    assert_eq!(sink.open(&boat).await.unwrap(), Ranges::default());
    sink.write(&boat, &entries(0..2)).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let expected: String = entries(0..2)
        .iter()
        .map(|entry| entry.record.to_json() + "\n")
        .collect();
    assert_eq!(text, expected);

    let path = scratch.path().join("ids");
    let mut sink = Sink::file(path.clone(), LinesOptions { ids: true });
    let entry = Entry {
        seq: 7,
        record: record("{}"),
    };
    sink.write(&boat, &[entry]).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = "{\"stream\":\"a\\\"b\",\"id\":\"00000000000000ff\",\"seq\":7,\"record\":{}}\n";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_line_that_a_crash_left_unfinished_does_not_spoil_the_next() {
    let scratch = Scratch::new();
    let path = scratch.path().join("log");
    std::fs::write(&path, "{\"a\":1}\n{\"a\":").unwrap();
    let boat = stream("a", 1);
    let mut sink = Sink::file(path.clone(), LinesOptions::default());
    sink.open(&boat).await.unwrap();
    sink.write(&boat, &entries(0..1)).await.unwrap();
    let mut source = Source::json_lines(tokio::fs::File::open(&path).await.unwrap());
    assert_eq!(next(&mut source).await, record(r#"{"a":1}"#));
    assert_eq!(next(&mut source).await, entries(0..1)[0].record);
    assert_eq!(source.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_told() {
    let boat = stream("a", 1);
    let mut sink = Sink::file("/nonexistent/log".into(), LinesOptions::default());
    let error = sink.open(&boat).await.unwrap_err();
    assert!(error.is_permanent());
    assert!(error.to_string().contains("/nonexistent/log"), "{error}");
}
