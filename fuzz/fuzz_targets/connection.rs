//! Decrypted packets handed to a whole connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::connection(data);
});
