//! Many seeds, each a whole cluster's story.

use std::time::Duration;
use vazao_meter::Clock;
use vazao_sim::{Profile, Story};

/// Seeds of one run of this test.
const SEEDS: std::ops::Range<u64> = 0..800;

/// The seeds that the environment asks for, else `usual`.
pub(crate) fn wanted(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("VAZAO_SIM_SEED"), number("VAZAO_SIM_SEEDS")) {
        (Some(seed), None) => seed..seed + 1,
        (first, Some(count)) => first.unwrap_or(0)..first.unwrap_or(0) + count,
        (None, None) => usual,
    }
}

#[test]
fn answered_operations_hold_and_synced_data_survives_under_every_seed() {
    let next = std::sync::atomic::AtomicU64::new(wanted(SEEDS).start);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= wanted(SEEDS).end {
                        break;
                    }
                    Story::run(seed, Profile::of_seed(seed));
                }
            });
        }
    });
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    let tell = |seed| {
        let mut story = Story::new(seed, Profile::of_seed(seed));
        story.tell();
        format!("{story:?}")
    };
    assert_eq!(tell(7), tell(7));
    assert_ne!(tell(7), tell(8));
}

#[test]
fn a_sleeping_clock_moves_by_what_was_slept() {
    let clock = vazao_sim::clock::SimClock::default();
    clock.sleep(Duration::from_millis(1_700));
    assert_eq!(clock.now_ns(), 1_700_000_000);
}
