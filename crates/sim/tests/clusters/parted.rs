//! Stories in which links between any two machines are cut, machines stand still and lose power.

use crate::seeds::wanted;
use vazao_sim::Parted;
use vazao_sim::parted::Tried;

/// Seeds of one run of this test.
const SEEDS: std::ops::Range<u64> = 0..24;

/// A client that had closed a file made it longer again by reading it.
#[test]
fn no_link_that_is_cut_costs_a_byte_or_a_deadline() {
    let (seeds, mut all) = (wanted(SEEDS), Tried::default());
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let tried = Parted::run(seed);
        all.cuts += tried.cuts;
        all.pauses += tried.pauses;
        all.power_losses += tried.power_losses;
        all.reads += tried.reads;
        all.syncs += tried.syncs;
        all.failed += tried.failed;
    }
    let Tried { cuts, pauses, power_losses, reads, syncs, failed } = all;
    let counts = [cuts, pauses, power_losses, reads, syncs, failed];
    assert!(count < 2 || !counts.contains(&0), "something was not tried: {all:?}");
    eprintln!("{count} seeds: {all:?}");
}
