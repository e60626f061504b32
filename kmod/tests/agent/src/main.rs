//! The smallest agent of the kernel module: `stcp-test-agent CERTIFICATE KEY [aes128|aes256|chacha]`.
//!
//! One thread a request, one identity for both sides: the server's certificate is pinned, clients
//! stay anonymous. It says `ready` once it has the device.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use towline_stcp::identity::{
    Cipher, CipherPreference, ClientAuth, Identity, KeyExchangePreference, Pin, TlsSettings, Trust,
    provider,
};
use towline_stcp::{
    Alpn, Authentication, CipherKeys, ClientConfig, Handshake, Records, ServerConfig,
};

const TLS_1_3: u16 = 0x0304;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let cipher = match arguments.get(3).map(String::as_str) {
        Some("aes256") => Cipher::Aes256Gcm,
        Some("chacha") => Cipher::ChaCha20,
        _ => Cipher::Aes128Gcm,
    };
    let provider = provider(
        &CipherPreference::only(cipher),
        &KeyExchangePreference::default(),
    );
    let settings = TlsSettings::new(Arc::new(provider), Arc::new(DefaultTimeProvider));
    let read = |path: &String| std::fs::read(path).expect("a file");
    let identity =
        Identity::from_pem(&read(&arguments[1]), &read(&arguments[2])).expect("identity");
    let pin = identity.certificate_pin().expect("a certificate");
    let client = ClientConfig::new(
        &Trust::Pinned(vec![Pin::Certificate(pin)]),
        None,
        Alpn::Stcp,
        Records::Counted,
        &settings,
    )
    .expect("client");
    let server = ServerConfig::new(
        &identity,
        &ClientAuth::None,
        Alpn::Stcp,
        Records::Counted,
        &settings,
    )
    .expect("server");
    let mut device = File::open("/dev/stcp").expect("/dev/stcp");
    println!("ready");
    let mut request = [0; 96];
    loop {
        match device.read(&mut request) {
            Ok(96) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => panic!("/dev/stcp: {other:?}"),
        }
        let fd = i32::from_ne_bytes(request[8..12].try_into().expect("four bytes"));
        let is_server = request[12] == 1;
        let (client, server) = (client.clone(), server.clone());
        std::thread::spawn(move || {
            // SAFETY: the module has just put this descriptor into our table, for us alone.
            let mut file = unsafe { File::from_raw_fd(fd) };
            let handshake = if is_server {
                Handshake::server(&server)
            } else {
                let name = ServerName::try_from("localhost").expect("a name");
                Handshake::client(&client, name)
            };
            let outcome = handshake
                .map_err(|error| error.to_string())
                .and_then(|handshake| serve(&mut file, handshake));
            let (status, authentication, pin) = match outcome {
                Ok((authentication, pin)) => (0, authentication, pin),
                Err(error) => {
                    eprintln!("agent: {error}");
                    (-libc::EPROTO, 0, [0; 32])
                }
            };
            let mut done = [0; 40];
            done[..4].copy_from_slice(&i32::to_ne_bytes(status));
            done[4] = authentication;
            done[8..].copy_from_slice(&pin);
            let _ = control(&file, 3, 40, done.as_ptr());
        });
    }
}

/// Shakes hands, record by record, and gives the keys to the kernel.
fn serve(file: &mut File, mut handshake: Handshake) -> Result<(u8, [u8; 32]), String> {
    let mut buffer = [0; 4096];
    loop {
        if !handshake.output().is_empty() {
            let sent = file.write(handshake.output()).map_err(|e| e.to_string())?;
            handshake.on_sent(sent);
            continue;
        }
        if handshake.is_complete() {
            break;
        }
        let wanted = handshake.wanted().min(buffer.len());
        let len = file
            .read(&mut buffer[..wanted])
            .map_err(|e| e.to_string())?;
        if len == 0 {
            return Err(handshake.handle_eof().to_string());
        }
        if let Err(error) = handshake.handle_input(&buffer[..len]) {
            let _ = file.write(handshake.output());
            return Err(error.to_string());
        }
    }
    let established = handshake.finish().map_err(|e| e.to_string())?;
    let authentication = match established.authentication() {
        Authentication::Certificate => 3,
        Authentication::Pinned => 2,
        Authentication::KeyShown => 1,
        Authentication::Anonymous => 0,
    };
    let pin = established
        .peer()
        .map_or([0; 32], |peer| *peer.key_pin().as_bytes());
    let (keys, _) = established
        .into_kernel()
        .ok_or("bytes beyond the handshake")?;
    install(file, 1, &keys.transmit)?;
    install(file, 2, &keys.receive)?;
    Ok((authentication, pin))
}

fn install(file: &File, number: u64, (keys, sequence): &(CipherKeys, u64)) -> Result<(), String> {
    let mut info = TLS_1_3.to_ne_bytes().to_vec();
    let (cipher, key, iv): (u16, &[u8], _) = match keys {
        CipherKeys::Aes128Gcm { key, iv } => (51, key, iv),
        CipherKeys::Aes256Gcm { key, iv } => (52, key, iv),
        CipherKeys::ChaCha20Poly1305 { key, iv } => (54, key, iv),
    };
    info.extend(cipher.to_ne_bytes());
    if cipher == 54 {
        info.extend(iv);
        info.extend(key);
    } else {
        info.extend(&iv[4..]);
        info.extend(key);
        info.extend(&iv[..4]);
    }
    info.extend(sequence.to_be_bytes());
    control(file, number, 4, info.as_ptr()).map_err(|e| format!("ioctl {number}: {e}"))
}

fn control(file: &File, number: u64, size: u64, argument: *const u8) -> io::Result<()> {
    let command = 1 << 30 | size << 16 | u64::from(b'S') << 8 | number;
    // SAFETY: `argument` points to a whole structure of the kind that the number stands for.
    match unsafe { libc::ioctl(file.as_raw_fd(), command, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
