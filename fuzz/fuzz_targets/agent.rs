//! A request to the agent of secure TCP, parsed and written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = towline_lab::fuzz::agent(data);
});
