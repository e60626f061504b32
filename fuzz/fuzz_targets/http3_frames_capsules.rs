//! Frames, capsules and datagrams of HTTP/3, parsed and written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::http3_frames_capsules(data);
});
