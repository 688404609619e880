//! The file's operations over every distribution, against a vector.

use super::files::{READ, Step, any_step, check_step};
use super::lists::check_list;
use super::*;
use crate::{OpenMode, Seek};
use proptest::prelude::*;
use vazao_model::distribution::{Strip, Strips};

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// Each with a number of servers that it fits.
fn all() -> Vec<(u32, Distribution)> {
    let strip = |slot, units| Strip { slot, bytes: units * UNIT };
    let strips = |strips| Distribution::VaryingStrips(Strips::new(strips).expect("valid"));
    let groups = |groups, factor| Distribution::Groups { unit_bytes: UNIT, groups, factor };
    vec![
        (3, Distribution::SimpleStripe { unit_bytes: UNIT }),
        (3, strips(vec![strip(0, 1), strip(1, 3), strip(2, 2)])),
        (2, strips(vec![strip(1, 1), strip(0, 2), strip(1, 2), strip(2, 1)])),
        (4, groups(2, 2)),
        (3, groups(3, 3)),
        (2, Distribution::Local { is_away: false }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    #[test]
    fn a_file_of_every_distribution_behaves_like_a_vector(
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        for (servers, distribution) in all() {
            let cluster = Cluster::with_distribution(servers, distribution);
            let client = cluster.client_with(Options { dirty_bytes_per_file_max: 2 << 16, ..Cluster::options() });
            let mut file = create(&client, "vector");
            let mut model = Vec::new();
            for step in &steps {
                check_step(&client, &mut file, &mut model, step);
            }
            let inode = file.inode();
            file.close().unwrap();
            prop_assert!(read_all(&cluster.client().open_file(inode, READ).unwrap()) == model);
        }
    }

    #[test]
    fn lists_over_every_distribution_agree_with_a_vector(
        steps in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec((0u64..1_500_000, 1usize..5_000), 1..30)), 1..5,
        ),
    ) {
        for (servers, distribution) in all() {
            let cluster = Cluster::with_distribution(servers, distribution);
            let file = create(&cluster.client(), "list");
            let mut model = pattern(5, 900_000);
            file.write_at(&model, 0).unwrap();
            for (seed, (is_write, ranges)) in (0..).zip(&steps) {
                check_list(&file, &mut model, *is_write, ranges, seed);
            }
            prop_assert!(read_all(&file) == model);
        }
    }

    #[test]
    fn copies_between_distributions_agree_with_vectors(
        from in 0u64..800_000, to in 0u64..800_000, length in 1u64..900_000,
    ) {
        for (servers, distribution) in all() {
            let cluster = Cluster::with_distribution(servers, distribution);
            let client = cluster.client();
            let (source, file) = (create(&client, "source"), create(&client, "copy"));
            let (bytes, mut model) = (pattern(6, 1_000_000), pattern(7, 500_000));
            source.write_at(&bytes, 0).unwrap();
            file.write_at(&model, 0).unwrap();
            let copied = file.copy_from(&source, from, to, length).unwrap() as usize;
            let (from, to) = (from as usize, to as usize);
            prop_assert_eq!(copied, (length as usize).min(bytes.len() - from));
            model.resize(model.len().max(to + copied), 0);
            model[to..to + copied].copy_from_slice(&bytes[from..from + copied]);
            prop_assert!(read_all(&file) == model);
        }
    }
}

#[test]
fn data_and_holes_are_found_byte_by_byte_in_every_distribution() {
    for (servers, distribution) in all() {
        let cluster = Cluster::with_distribution(servers, distribution.clone());
        let file = create(&cluster.client(), "holes");
        let runs = [10..20_000u64, 300_000..600_000, 1_900_000..2_000_001];
        for run in &runs {
            file.write_at(&vec![7; (run.end - run.start) as usize], run.start).unwrap();
        }
        file.set_length(3 << 20).unwrap();
        let (mut found, mut position) = (Vec::new(), 0);
        while let Some(start) = file.seek(Seek::Data, position).unwrap() {
            position = file.seek(Seek::Hole, start).unwrap().unwrap();
            found.push(start..position);
        }
        assert_eq!(found, runs, "{distribution:?}");
        file.zero(0..1_950_000).unwrap();
        assert_eq!(file.seek(Seek::Data, 0).unwrap(), Some(1_950_000), "{distribution:?}");
    }
}

#[test]
fn a_layout_from_the_future_is_refused_with_the_remedy_and_nothing_is_lost() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "future");
    let (inode, bytes) = (file.inode(), pattern(8, 300_000));
    file.write_at(&bytes, 0).unwrap();
    file.close().unwrap();
    let set = |change: &dyn Fn(&mut proto::Layout)| {
        let mut state = cluster.meta.state.lock();
        change(state.inodes.get_mut(&inode.0).unwrap().layout.as_mut().unwrap());
    };
    let other = cluster.client();
    set(&|layout| layout.version = 4);
    let refused = other.open_file(inode, BOTH).expect_err("nobody here can read it");
    assert_eq!(refused.code, vazao_model::Code::VersionMismatch);
    assert!(refused.to_string().contains("layout of version 4"), "{refused}");
    set(&|layout| (layout.version, layout.distribution) = (2, 77));
    let refused = other.open_file(inode, READ).expect_err("nor this");
    assert!(refused.to_string().contains("unknown distribution 77"), "{refused}");
    set(&|layout| (layout.version, layout.distribution) = (1, 1));
    assert!(read_all(&other.open_file(inode, READ).unwrap()) == bytes);
    let mut model = bytes;
    let mut file = other.open_file(inode, BOTH).unwrap();
    check_step(&other, &mut file, &mut model, &Step::Write { offset: 5, length: 70_000, seed: 1 });
    check_step(&other, &mut file, &mut model, &Step::Compare);
}
