//! Random numbers: from the kernel, or in simulation from a seed.

use crate::service::fault::Outcome;
use parking_lot::Mutex;
use vazao_model::Code;
use vazao_wire::service::Fault;

/// A source of random numbers.
pub(crate) enum Random {
    /// The kernel's.
    Kernel,
    /// SplitMix64 (Steele, Lea, Flood 2014), the same sequence for the same seed.
    Seeded(Mutex<u64>),
}

impl Random {
    pub(crate) fn new(seed: Option<u64>) -> Random {
        seed.map_or(Random::Kernel, |seed| Random::Seeded(Mutex::new(seed)))
    }

    /// A random number other than 0, which stands for "none" everywhere.
    pub(crate) fn number(&self) -> Outcome<u64> {
        loop {
            let number = match self {
                Random::Kernel => getrandom::u64()
                    .map_err(|e| Fault::new(Code::Internal, format!("the kernel's random numbers: {e}")))?,
                Random::Seeded(state) => split_mix(&mut state.lock()),
            };
            if number != 0 {
                return Ok(number);
            }
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
