//! What is cut, and for how long.

use super::network::{Cut, HostId};
use super::{Arguments, CLIENTS};
use crate::daemons::META;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeSet;

/// What is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Kind {
    /// A client and the metadata service
    ClientMetadata,
    /// A client and a data server
    ClientData,
    /// A data server and the metadata service
    DataMetadata,
    /// All of one host, silently
    Host,
    /// The cable of one host
    Cable,
}

/// How long a cut is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Length {
    /// 50 ms to 6 s
    Short,
    /// 8 to 30 s: near the deadline of a request
    Near,
    /// 32 to 80 s: beyond the deadline and, in part, the leases
    Beyond,
}

impl Length {
    fn of_round(number: u64) -> Length {
        match number {
            number if number % 20 == 19 => Length::Beyond,
            number if number % 8 == 7 => Length::Near,
            _ => Length::Short,
        }
    }

    fn draw_ms(self, random: &mut StdRng) -> u64 {
        match self {
            // As many between 50 and 500 ms as between 0.5 and 6 s.
            Length::Short => (50.0 * f64::powf(120.0, random.random_range(0.0..1.0))) as u64,
            Length::Near => random.random_range(8_000..30_000),
            Length::Beyond => random.random_range(32_000..80_000),
        }
    }
}

/// Draws a cut and its length in milliseconds.
pub(super) fn draw_cut(arguments: &Arguments, number: u64, random: &mut StdRng) -> (Cut, u64) {
    let kinds = [
        Kind::ClientMetadata,
        Kind::ClientData,
        Kind::DataMetadata,
        Kind::Host,
        Kind::ClientData,
        Kind::Cable,
    ];
    let drawn = kinds[random.random_range(0..kinds.len())];
    let data = HostId(random.random_range(1..=arguments.data_servers));
    let client = HostId(1 + arguments.data_servers + random.random_range(0..CLIENTS));
    let any = HostId(random.random_range(0..1 + arguments.data_servers + CLIENTS));
    // Both ways, or one of them.
    let ways = random.random_range(0..4);
    let pair = |one: HostId, other: HostId| Cut::Ways(both(one, other, ways));
    let cut = match arguments.only.unwrap_or(drawn) {
        Kind::ClientMetadata => pair(client, HostId(META)),
        Kind::ClientData => pair(client, data),
        Kind::DataMetadata => pair(data, HostId(META)),
        Kind::Host => {
            let hosts = (0..1 + arguments.data_servers + CLIENTS).map(HostId).filter(|host| *host != any);
            Cut::Ways(hosts.flat_map(|other| both(any, other, ways)).collect())
        }
        Kind::Cable => Cut::Cable(any),
    };
    let length = arguments.length.unwrap_or(Length::of_round(number));
    let drawn_ms = length.draw_ms(random);
    (cut, arguments.cut_ms.unwrap_or(drawn_ms))
}

fn both(one: HostId, other: HostId, ways: u8) -> BTreeSet<(HostId, HostId)> {
    match ways {
        0 => BTreeSet::from([(one, other)]),
        1 => BTreeSet::from([(other, one)]),
        _ => BTreeSet::from([(one, other), (other, one)]),
    }
}
