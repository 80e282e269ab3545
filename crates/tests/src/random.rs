//! Random numbers of tests.

/// Numbers that differ from run to run of the test, from a printed seed.
pub struct Random(u64);

impl Random {
    /// From the time; prints the seed.
    #[allow(clippy::new_without_default, reason = "each one differs")]
    pub fn new() -> Random {
        let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let seed = seed.as_nanos() as u64;
        println!("seed {seed}");
        Random(seed)
    }

    /// The next number, below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
