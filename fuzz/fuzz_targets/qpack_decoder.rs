//! Compressed fields and the instructions of their coders, from a hostile peer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::qpack_decoder(data);
});
