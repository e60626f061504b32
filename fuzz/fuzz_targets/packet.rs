//! One datagram as it arrives: headers, coalescing, lengths.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::packet(data);
});
