//! A clear connection and a secure one, joined.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use towline::stcp::{Records, SpliceError, Spliced, Stream, splice};

use crate::peers::{Sides, loopback, options, read_all, reset, within};

/// Other bytes than those that a sniffer may never see.
fn clear(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 253) as u8).collect()
}

/// The clear end, the splice under way and the secure end.
async fn joined(records: Records) -> (TcpStream, JoinHandle<Result<Spliced, SpliceError>>, Stream) {
    let options = options().records(records);
    let (near, far) = Sides::with(&options).streams().await;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let program = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let clear = listener.accept().await.unwrap().0;
    (program, tokio::spawn(splice(clear, near)), far)
}

#[tokio::test]
async fn bytes_and_ends_pass_a_splice_both_ways() {
    for records in [Records::Counted, Records::Kernel, Records::UserSpace] {
        let (mut program, splicing, mut far) = joined(records).await;
        let (up, down) = (clear(700_000), clear(300_000));
        let asking = async {
            program.write_all(&up).await.unwrap();
            program.shutdown().await.unwrap();
            let (got, end) = read_all(&mut program).await;
            end.unwrap();
            got
        };
        let answering = async {
            let (got, end) = read_all(&mut far).await;
            end.unwrap();
            far.write_all(&down).await.unwrap();
            far.shutdown().await.unwrap();
            got
        };
        let (answer, question) = within(async { tokio::join!(asking, answering) }).await;
        assert!(answer == down && question == up);
        let spliced = within(splicing).await.unwrap().unwrap();
        let (sealed, opened) = (up.len() as u64, down.len() as u64);
        assert_eq!(spliced, Spliced { sealed, opened });
    }
}

#[tokio::test]
async fn a_cut_on_one_side_of_a_splice_is_a_reset_on_the_other() {
    for records in [Records::Counted, Records::Kernel, Records::UserSpace] {
        for secure_side in [false, true] {
            let (mut program, splicing, mut far) = joined(records).await;
            program.write_all(b"half a").await.unwrap();
            let mut got = [0; 6];
            within(far.read_exact(&mut got)).await.unwrap();
            let end = if secure_side {
                drop(far);
                read_all(&mut program).await.1
            } else {
                reset(program);
                read_all(&mut far).await.1
            };
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
            let error = within(splicing).await.unwrap().unwrap_err();
            assert_eq!(error.error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(error.spliced.sealed, 6);
        }
    }
}
