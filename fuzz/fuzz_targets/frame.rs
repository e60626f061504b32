//! A decrypted payload: every frame, parsed and written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::frame(data);
});
