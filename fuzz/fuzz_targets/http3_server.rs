//! A whole HTTP/3 server with WebTransport, its client and its application.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    towline_lab::fuzz::http3_server(data);
});
