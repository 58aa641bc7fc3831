//! Any bytes, imported as a complete file with a machine; better with `-max_len=65536`.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::bundle_importer);

// input without a head is first completed to a file, so that a run needs no corpus
#[cfg(fuzzing)]
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let seeds = (stasis_fuzz::bundle_importer().seeds)();
    let sample = &seeds[seed as usize % seeds.len()];
    if size > 56 || sample.len() > max_size {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    data[..sample.len()].copy_from_slice(sample);
    libfuzzer_sys::fuzzer_mutate(data, sample.len(), max_size)
});
