//! What kind of story a seed stands for.

use crate::defects::Defect;
use crate::network::Weather;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// What a story is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Clients that take turns.
    pub clients: usize,
    /// Data servers.
    pub data_servers: usize,
    /// Steps.
    pub steps: usize,
    /// How often requests go wrong.
    pub weather: Weather,
    /// Thousandths of the steps in which a daemon is killed.
    pub kills: u32,
    /// Thousandths of the steps in which a machine, or all of them, loses power.
    pub power_losses: u32,
    /// Data servers' disks are nearly full.
    pub is_full: bool,
    /// What is wrong on purpose.
    pub defect: Option<Defect>,
}

impl Profile {
    /// The profile that a seed stands for.
    pub fn of_seed(seed: u64) -> Profile {
        let mut random = StdRng::seed_from_u64(seed ^ 0x7072_6f66);
        let is_calm = random.random_bool(0.1);
        let mut chance = |share: f64, max: u32| {
            if !is_calm && random.random_bool(share) { random.random_range(1..=max) } else { 0 }
        };
        let weather = Weather {
            lost: chance(0.5, 20),
            broken: chance(0.5, 60),
            killed: chance(0.4, 15),
            power_lost: chance(0.3, 8),
            late: 0,
            doubled: 0,
        };
        let (kills, power_losses) = (chance(0.5, 60), chance(0.5, 40));
        let is_full = chance(0.15, 1) == 1;
        let (clients, data_servers) = (random.random_range(1..=2), random.random_range(1..=4));
        let is_late = !is_calm && random.random_bool(0.3);
        let late = if is_late { random.random_range(1..=40) } else { 0 };
        let (weather, defect) = (Weather { late, ..weather }, None);
        Profile { clients, data_servers, steps: 250, weather, kills, power_losses, is_full, defect }
    }
}
