//! Decrypted packets handed to a whole connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_lab::fuzz::connection(data));
