#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stowplan_fuzz::run("numa", input));
