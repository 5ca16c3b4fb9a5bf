//! Weighted rendezvous hashing: what it costs to put a shard on a runner. Each shard goes where it costs least.
//!
//! The cost is `-log2(hash) / weight` in integers, because all runners have to agree to the last bit, whatever their
//! processor, library or release.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{GroupName, Instance};

const FRACTION_BITS: u32 = 26;
const ONE: u64 = 1 << FRACTION_BITS;
const STEPS: usize = 256;

/// `log2(1 + i / 256)`. Between two of them a straight line is near enough: what counts is that all draw the same one.
static LOG2: [u64; STEPS + 1] = log2_table();

const fn log2_table() -> [u64; STEPS + 1] {
    let mut table = [ONE; STEPS + 1];
    let mut i = 0;
    while i < STEPS {
        // One digit of the logarithm after the other: the square is above two if the digit is one.
        let mut x = (STEPS as u128 + i as u128) << 54;
        let mut log = 0;
        let mut digit = 0;
        while digit < FRACTION_BITS {
            x = (x * x) >> 62;
            log <<= 1;
            if x >= 2 << 62 {
                x >>= 1;
                log |= 1;
            }
            digit += 1;
        }
        table[i] = log;
        i += 1;
    }
    table
}

/// `-log2(hash / 2^64)` with 26 binary digits after the point; at least the smallest step above zero.
fn minus_log2(hash: u64) -> u64 {
    let hash = hash | 1;
    let zeros = hash.leading_zeros();
    let mantissa = (hash << zeros) << 1;
    let [step, a, b, c, d, ..] = mantissa.to_be_bytes();
    let (low, high) = (LOG2[usize::from(step)], LOG2[usize::from(step) + 1]);
    let between = ((high - low) * u64::from(u32::from_be_bytes([a, b, c, d]))) >> 32;
    (u64::from(zeros + 1) << FRACTION_BITS) - (low + between)
}

/// A shard, hashed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn of(group: &GroupName, id: u16) -> Self {
        Self(xxh3_64_with_seed(group.as_str().as_bytes(), u64::from(id)))
    }
}

/// A runner, hashed, with its weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site {
    seed: u64,
    /// 2^31 divided by the weight. Costs then stay below 2^64.
    inverse: u64,
}

impl Site {
    pub(super) fn new(instance: &Instance, weight: u16) -> Self {
        Self { seed: xxh3_64(instance.as_str().as_bytes()), inverse: (1 << 31) / u64::from(weight.max(1)) }
    }

    /// An order of runners that has nothing to do with their names.
    pub(super) fn seed(self) -> u64 {
        self.seed
    }

    /// What it costs to put the shard here.
    pub(super) fn cost(self, key: Key) -> u64 {
        minus_log2(mix(self.seed ^ key.0.rotate_left(32))) * self.inverse
    }
}

/// Spreads 64 bits over 64 bits, one to one (the finalizer of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_near_the_real_one_and_never_rises() {
        let mut last = u64::MAX;
        for i in 0..=100_000u64 {
            let hash = i * (u64::MAX / 100_000);
            let log = minus_log2(hash);
            assert!((1..=last).contains(&log), "at {hash}");
            last = log;
            let real = 64.0 - ((hash | 1) as f64).log2();
            assert!((log as f64 / ONE as f64 - real).abs() < 1e-5, "at {hash}: {log}, {real}");
        }
        assert_eq!(minus_log2(0), 64 << FRACTION_BITS);
        assert_eq!(minus_log2(u64::MAX), 1);
    }

    #[test]
    fn runners_win_shards_in_proportion_to_their_weights() {
        let weights = [1u16, 2, 3, 4];
        let sites: Vec<_> =
            weights.iter().map(|w| Site::new(&Instance::new(format!("runner-{w}")), *w)).collect();
        let mut wins = [0u32; 4];
        for id in 0..50_000 {
            let key = Key::of(&GroupName::default(), id);
            let best = (0..4).min_by_key(|i| sites[*i].cost(key)).unwrap();
            wins[best] += 1;
        }
        for (won, weight) in wins.iter().zip(weights) {
            let share = f64::from(*won) / 5_000.0;
            assert!((share - f64::from(weight)).abs() < 0.1, "weight {weight} won {share}");
        }
    }
}
