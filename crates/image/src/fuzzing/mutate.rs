//! Changes to bytes, the same ones for the same seed, for tests that fuzz without a fuzzer.

/// xorshift64*: small, seeded, and good enough to pick bytes.
pub struct Random(u64);

impl Random {
    /// From a seed that is not 0.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `end`, or 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Bytes that lengths and counts are sensitive to.
const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// A few changes of a few bytes.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        // Headers and tables are small and decide most, so half of the damage goes there.
        let area = if random.below(2) == 0 { bytes.len().min(400) } else { bytes.len() };
        let at = random.below(area);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.extend_from_slice(&random.next().to_le_bytes()),
            4 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << random.below(8)),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = EDGES[random.below(6)]),
        }
    }
}
