//! Messages of the delta link.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::link_messages(data);
});
