//! Samples of one quantity.

use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn push_ms(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1e3);
    }

    pub fn each(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn p50(&self) -> Option<f64> {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            len if len % 2 == 1 => Some(sorted[middle]),
            _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        }
    }

    /// The smallest sample that at least 95 % of all do not exceed.
    pub fn p95(&self) -> Option<f64> {
        let sorted = self.sorted();
        let rank = (sorted.len() * 95).div_ceil(100);
        sorted.get(rank.checked_sub(1)?).copied()
    }

    pub fn min(&self) -> Option<f64> {
        self.sorted().first().copied()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl From<f64> for Samples {
    fn from(value: f64) -> Samples {
        Samples(vec![value])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_samples() {
        let mut samples = Samples::default();
        assert_eq!((samples.p50(), samples.p95(), samples.min()), (None, None, None));
        (1..=20).rev().for_each(|n| samples.push(f64::from(n)));
        assert_eq!(samples.p50(), Some(10.5));
        assert_eq!(samples.p95(), Some(19.0));
        assert_eq!(samples.min(), Some(1.0));
        samples.push(21.0);
        assert_eq!(samples.p50(), Some(11.0));
        assert_eq!(Samples::from(3.0).p95(), Some(3.0));
    }
}
