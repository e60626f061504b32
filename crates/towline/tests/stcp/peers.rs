//! Two sides that know each other, and raw sockets that misbehave.

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use towline::config::{Cipher, CipherPreference, ClientAuth, Identity, KeyLogging, Trust};
use towline::stcp::{
    ClientConfig, Listener, Options, Records, ServerConfig, Stream, client_config, connect, listen,
    server_config,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How many times as long everything takes, on a kernel that looks for errors: the guest's runner says so.
pub(crate) fn slowness() -> u32 {
    std::env::var("TOWLINE_SLOW").map_or(1, |slow| slow.parse().unwrap())
}

/// `duration`, or more where the kernel is slow.
pub(crate) fn patience(duration: Duration) -> Duration {
    duration * slowness()
}
pub(crate) const NAME: &str = "localhost";

/// Fails a test that hangs instead of letting it hang.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(patience(30 * SECOND), future)
        .await
        .expect("nothing happened for 30 s")
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The kernel sends where it can: `make kmod-test` runs everything so, and everywhere else it is our
/// own records.
pub(crate) fn options() -> Options {
    Options::default()
        .key_log(KeyLogging::Off)
        .records(Records::Kernel)
}

/// Two sides that pin each other's raw keys.
#[derive(Clone)]
pub(crate) struct Sides {
    pub(crate) client: ClientConfig,
    pub(crate) server: ServerConfig,
}

impl Sides {
    pub(crate) fn new() -> Self {
        Self::with(&options())
    }

    pub(crate) fn with_cipher(cipher: Cipher) -> Self {
        Self::with(&options().ciphers(CipherPreference::only(cipher)))
    }

    pub(crate) fn with(options: &Options) -> Self {
        Self::with_each(options, options)
    }

    /// With options for the client and others for the server.
    pub(crate) fn with_each(client_options: &Options, server_options: &Options) -> Self {
        let server = Identity::generate_raw_key().unwrap();
        let client = Identity::generate_raw_key().unwrap();
        let trust = Trust::RawKeys(vec![server.key_pin()]);
        let auth = ClientAuth::RawKeys(vec![client.key_pin()]);
        Self {
            client: client_config(&trust, Some(&client), client_options).unwrap(),
            server: server_config(&server, &auth, server_options).unwrap(),
        }
    }

    pub(crate) async fn listen(&self) -> (Listener, SocketAddr) {
        let listener = listen(loopback(), self.server.clone()).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A client's and a server's stream.
    pub(crate) async fn streams(&self) -> (Stream, Stream) {
        let (mut listener, address) = self.listen().await;
        let (near, far) =
            within(async { tokio::join!(connect(address, NAME, &self.client), listener.accept()) })
                .await;
        (near.unwrap(), far.unwrap().0)
    }
}

/// A stream, and the TCP connection of its peer beneath a relay that passes records on until the
/// test takes over.
pub(crate) async fn streams_through_relay(sides: &Sides) -> (Stream, Stream, Relay) {
    let (mut listener, address) = sides.listen().await;
    let front = TcpListener::bind(loopback()).await.unwrap();
    let at = front.local_addr().unwrap();
    let relay = async move {
        let near = front.accept().await.unwrap().0;
        let far = TcpStream::connect(address).await.unwrap();
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        (near, far)
    };
    let (relay_sender, relay_receiver) = tokio::sync::oneshot::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut near, mut far) = relay.await;
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = stopped => {}
        }
        let _ = relay_sender.send((near, far));
    });
    let (near, far) =
        within(async { tokio::join!(connect(at, NAME, &sides.client), listener.accept()) }).await;
    let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
    // The tickets pass before the relay is stopped.
    let mut one = [0];
    far.write_all(b"!").await.unwrap();
    within(near.read_exact(&mut one)).await.unwrap();
    let _ = stop.send(());
    let (to_client, to_server) = within(relay_receiver).await.unwrap();
    let relay = Relay {
        to_client,
        to_server,
    };
    (near, far, relay)
}

/// The middle of a connection, in the test's hands.
pub(crate) struct Relay {
    pub(crate) to_client: TcpStream,
    pub(crate) to_server: TcpStream,
}

/// Closes with a RST.
pub(crate) fn reset(tcp: TcpStream) {
    let socket = socket2::SockRef::from(&tcp);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Reads to the end; what came, and how it ended.
pub(crate) async fn read_all(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
) -> (Vec<u8>, std::io::Result<()>) {
    let mut all = Vec::new();
    let end = within(stream.read_to_end(&mut all)).await.map(drop);
    (all, end)
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

/// A file with so much of the pattern in it; nobody else can open it.
pub(crate) fn file(len: usize) -> File {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let path = std::env::temp_dir().join(format!(
        "towline-stcp-file-{}-{}",
        std::process::id(),
        MADE.fetch_add(1, Ordering::Relaxed)
    ));
    let mut options = File::options();
    let mut file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(&pattern(len)).unwrap();
    file
}

/// Segments that have come to this end, and whether FIN was among them (`tcpi_segs_in` and `tcpi_state` of
/// Linux's `tcp_info`).
pub(crate) fn segments_in(tcp: &TcpStream) -> (u32, bool) {
    const CLOSE_WAIT: u8 = 8;
    const AT: usize = 140;
    let mut info = [0_u8; 256];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the call writes at most `len` bytes to `info`.
    let result = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    assert!(result == 0 && len as usize >= AT + 4);
    let segments = u32::from_ne_bytes(*info[AT..].first_chunk().unwrap());
    (segments, info[0] == CLOSE_WAIT)
}
