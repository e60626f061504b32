//! Files sent as they are.

use std::fs::File;
use std::io::ErrorKind;

use tokio::io::AsyncWriteExt;
use towline::stcp::Records;

use crate::peers::{SECOND, Sides, file, options, pattern, read_all, within};

const LEN: usize = 3_000_003;

fn kinds() -> [Sides; 3] {
    [Records::Counted, Records::Kernel, Records::UserSpace]
        .map(|records| Sides::with(&options().records(records)))
}

#[tokio::test]
async fn a_file_arrives_between_other_writes() {
    for sides in kinds() {
        let (mut near, mut far) = sides.streams().await;
        let size = socket2::SockRef::from(near.tcp());
        size.set_send_buffer_size(50_000).unwrap();
        let sending = tokio::spawn(async move {
            let file = file(LEN);
            near.write_all(b"before").await.unwrap();
            let sent = near.send_file(&file, 0, LEN as u64).await.unwrap();
            assert_eq!(sent, LEN as u64);
            near.write_all(b"between").await.unwrap();
            let (read, mut write) = near.into_split();
            // A piece of it, and more than there is.
            assert_eq!(write.send_file(&file, 100, 900).await.unwrap(), 900);
            let sent = write.send_file(&file, LEN as u64 - 5, u64::MAX).await;
            assert_eq!(sent.unwrap(), 5);
            let sent = write.send_file(&file, LEN as u64 + 5, 1).await;
            assert_eq!(sent.unwrap(), 0);
            write.shutdown().await.unwrap();
            let error = write.send_file(&file, 0, 1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            read
        });
        // It does not fit while nobody reads.
        tokio::time::sleep(SECOND / 20).await;
        assert!(!sending.is_finished());
        let (got, end) = read_all(&mut far).await;
        end.unwrap();
        let data = pattern(LEN);
        let expected = [
            b"before",
            &data[..],
            b"between",
            &data[100..1000],
            &data[LEN - 5..],
        ];
        assert!(got == expected.concat(), "{} bytes came", got.len());
        within(sending).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_file_and_who_is_gone_are_errors() {
    for sides in kinds() {
        let (mut near, far) = sides.streams().await;
        let folder = File::open("/").unwrap();
        near.send_file(&folder, 0, 1).await.unwrap_err();
        drop(far);
        let file = file(LEN);
        let error = within(async {
            loop {
                if let Err(error) = near.send_file(&file, 0, LEN as u64).await {
                    return error;
                }
            }
        })
        .await;
        assert!(
            matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            "{error}"
        );
    }
}
