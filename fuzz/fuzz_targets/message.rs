//! A message with several readers, its bytes in any order, against a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::message(data);
});
