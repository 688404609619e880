//! Channels: contents, limits, leases, restarts, files replaced beneath them.

use super::World;
use crate::Options;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::area::{Channel, ChannelOptions};
use vazao_meter::machine::DiskWatches;
use vazao_meter::measures::Measures;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::inline::Fate;

const READ: ChannelOptions = ChannelOptions {
    read: true,
    write: false,
    create: false,
    exclusive: false,
    truncate: false,
    mode: 0o644,
    identity: None,
};
const CREATE: ChannelOptions = ChannelOptions { write: true, create: true, ..READ };

fn text(channel: &Channel) -> vazao_client::Result<Vec<u8>> {
    let mut bytes = vec![0; 100];
    let count = channel.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize, u8),
    Read(u64, usize),
    ReadList(Vec<(u64, usize)>),
    SetLength(u64),
    Sync,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0u64..300_000;
    let range = (at.clone(), 0usize..200_000);
    let step = prop_oneof![
        4 => (at.clone(), 0usize..200_000, any::<u8>()).prop_map(|(at, length, seed)| Step::Write(at, length, seed)),
        4 => range.clone().prop_map(|(at, length)| Step::Read(at, length)),
        2 => proptest::collection::vec(range, 1..10).prop_map(Step::ReadList),
        1 => at.prop_map(Step::SetLength),
        1 => Just(Step::Sync),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..30)
}

fn window(model: &[u8], at: u64, length: usize) -> &[u8] {
    let start = (at as usize).min(model.len());
    &model[start..(start + length).min(model.len())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_channel_behaves_as_an_array_of_bytes(steps in steps()) {
        let mut world = World::new();
        let channel = world.area.open(b"f", &CREATE).expect("opens");
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Step::Write(at, length, seed) => {
                    let bytes: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
                    channel.write_at(&bytes, at).expect("written");
                    let end = at as usize + length;
                    if length > 0 && model.len() < end {
                        model.resize(end, 0);
                    }
                    if length > 0 {
                        model[at as usize..end].copy_from_slice(&bytes);
                    }
                }
                Step::Read(at, length) => {
                    let mut bytes = vec![0; length];
                    let count = channel.read_at(&mut bytes, at).expect("read");
                    prop_assert_eq!(&bytes[..count], window(&model, at, length));
                }
                Step::ReadList(ranges) => {
                    let list = channel.read_list(&ranges).expect("read");
                    for (bytes, (at, length)) in list.iter().zip(ranges) {
                        prop_assert_eq!(&bytes[..], window(&model, at, length));
                    }
                }
                Step::SetLength(length) => {
                    channel.set_length(length).expect("set");
                    model.resize(length as usize, 0);
                }
                Step::Sync => channel.sync().expect("synced"),
                Step::Restart => world.restart(),
            }
        }
        prop_assert_eq!(channel.stat().expect("known").size, model.len() as u64);
        prop_assert_eq!(std::fs::read(world.path("data/f")).expect("is there"), model);
    }
}

#[test]
fn twenty_thousand_channels_work_with_sixty_four_descriptors() {
    let world = World::with(Options { descriptors_max: 64, ..Options::default() });
    (0..100).for_each(|i| world.put(&format!("data/{i}"), format!("file {i}").as_bytes()));
    let open = |i: usize| world.area.open(format!("{}", i % 100).as_bytes(), &READ).expect("opens");
    let channels: Vec<Channel> = (0..20_000).map(open).collect();
    let shared = &world.service.shared;
    assert_eq!((shared.channels.len(), shared.descriptors.len()), (20_000, 64));
    for (i, channel) in channels.iter().enumerate().rev() {
        assert_eq!(text(channel).expect("read"), format!("file {}", i % 100).into_bytes());
    }
    assert_eq!(shared.descriptors.len(), 64);
    drop(channels);
    assert_eq!((shared.channels.len(), shared.descriptors.len()), (0, 0));
}

#[test]
fn one_channel_more_than_the_maximum_is_refused_with_its_setting() {
    let world = World::with(Options { channels_max: 3, ..Options::default() });
    world.put("data/f", b"x");
    let mut channels: Vec<Channel> = (0..3).map(|_| world.area.open(b"f", &READ).expect("opens")).collect();
    let error = world.area.open(b"f", &READ).expect_err("one too many");
    assert_eq!(error.code, Code::InUse);
    let said = error.to_string();
    assert!(said.contains("3 channels") && said.contains("channels_max") && said.contains("n1"), "{said}");
    channels.pop();
    world.area.open(b"f", &READ).expect("there is room again");
}

#[test]
fn channels_of_a_silent_client_are_closed_and_those_of_one_that_renews_are_not() {
    let world = World::new();
    world.put("data/f", b"x");
    let other = world.client.area("n1", "data");
    let (kept, lost) =
        (world.area.open(b"f", &READ).expect("opens"), other.open(b"f", &READ).expect("opens"));
    for _ in 0..4 {
        world.clock.advance(Duration::from_secs(20));
        world.area.tick().expect("renewed");
        world.service.tick();
    }
    assert_eq!(world.service.shared.channels.len(), 1);
    assert_eq!(world.service.shared.descriptors.len(), 1);
    assert_eq!(text(&kept).expect("is open"), b"x");
    assert_eq!(text(&lost).expect("is opened again"), b"x");
    assert_eq!(world.service.shared.channels.len(), 2);
    for _ in 0..10 {
        world.clock.advance(Duration::from_secs(30));
        assert_eq!(text(&lost).expect("reading renews, too"), b"x");
        world.service.tick();
    }
    assert_eq!(world.service.shared.channels.len(), 1);
}

/// A mount that goes on with other files kept each alive that it could not close while the network was away, up to
/// the node's limit.
#[test]
fn a_channel_whose_end_the_node_was_not_told_of_ends_although_others_are_renewed() {
    let world = World::new();
    world.put("data/f", b"x");
    let open = || world.area.open(b"f", &READ).expect("opens");
    let (kept, dropped, closed) = (open(), open(), open());
    world.transport.set_fates(Some(Box::new(|_, _| Fate::BreakBefore)));
    drop(dropped);
    closed.close().expect_err("the network is away");
    world.transport.set_fates(Some(Box::new(|_, method| match method {
        Method::CloseChannel => Fate::BreakBefore,
        _ => Fate::Deliver,
    })));
    world.area.tick().expect_err("it is not there yet for all");
    assert_eq!(world.service.shared.channels.len(), 3);
    world.transport.set_fates(None);
    world.area.tick().expect("renewed");
    assert_eq!(world.service.shared.channels.len(), 1);
    assert_eq!(text(&kept).expect("is open"), b"x");
}

#[test]
fn a_restart_is_not_noticed_and_a_file_replaced_meanwhile_is() {
    let mut world = World::new();
    world.put("data/f", b"before");
    let channel = world.area.open(b"f", &CREATE).expect("opens");
    world.restart();
    assert_eq!(text(&channel).expect("opened again"), b"before");
    channel.write_at(b"BEFORE", 0).expect("written");
    world.restart();
    channel.sync().expect("the page cache outlives the daemon");
    world.put("data/new", b"after");
    std::fs::rename(world.path("data/new"), world.path("data/f")).expect("replaced");
    world.restart();
    let error = text(&channel).expect_err("another file");
    assert_eq!(error.code, Code::Stale);
    assert!(error.to_string().contains("replaced by another one"), "{error}");
}

#[test]
fn a_file_replaced_or_removed_is_stale_with_or_without_a_cached_descriptor() {
    for descriptors_max in [1, 64] {
        let world = World::with(Options { descriptors_max, ..Options::default() });
        world.put("data/f", b"before");
        world.put("data/g", b"other");
        let channel = world.area.open(b"f", &CREATE).expect("opens");
        let identity = channel.identity();
        // With a cache of one this pushes the first one's descriptor out.
        let other = world.area.open(b"g", &READ).expect("opens");
        world.put("data/new", b"after");
        std::fs::rename(world.path("data/new"), world.path("data/f")).expect("replaced");
        assert_eq!(text(&channel).expect_err("replaced").code, Code::Stale);
        assert_eq!(channel.write_at(b"x", 0).expect_err("replaced").code, Code::Stale);
        std::fs::remove_file(world.path("data/g")).expect("removed");
        let _ = text(&channel);
        assert_eq!(text(&other).expect_err("removed").code, Code::Stale);
        let again = ChannelOptions { identity: Some(identity), ..READ };
        assert_eq!(world.area.open(b"f", &again).expect_err("another").code, Code::Stale);
        assert_eq!(text(&world.area.open(b"f", &READ).expect("opens")).expect("read"), b"after");
    }
}

#[test]
fn a_channel_does_only_what_it_was_opened_for() {
    let world = World::new();
    world.put("data/f", b"x");
    let reading = world.area.open(b"f", &READ).expect("opens");
    assert_eq!(reading.write_at(b"y", 0).expect_err("read only").code, Code::NotPermitted);
    assert_eq!(reading.set_length(0).expect_err("read only").code, Code::NotPermitted);
    let writing = world.area.open(b"f", &ChannelOptions { read: false, ..CREATE }).expect("opens");
    assert_eq!(text(&writing).expect_err("write only").code, Code::NotPermitted);
    writing.write_at(b"y", 0).expect("written");
    assert_eq!(text(&reading).expect("read"), b"y");
    let exclusive = ChannelOptions { exclusive: true, ..CREATE };
    assert_eq!(world.area.open(b"f", &exclusive).expect_err("is there").code, Code::Exists);
    let cut = world.area.open(b"f", &ChannelOptions { truncate: true, ..CREATE }).expect("opens");
    assert_eq!(cut.stat().expect("known").size, 0);
    assert_eq!(writing.write_at(b"x", u64::MAX).expect_err("beyond").code, Code::TooLarge);
}

#[test]
fn several_reads_of_one_thread_are_in_flight() {
    let world = World::new();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i / 3) as u8).collect();
    world.put("data/f", &bytes);
    let channel = world.area.open(b"f", &READ).expect("opens");
    let flying: Vec<_> = (0..10).map(|i| channel.start_read(i * 100_000, 100_000).expect("sent")).collect();
    let mut buffer = vec![0; 100_000];
    for (i, pending) in flying.into_iter().enumerate().rev() {
        assert_eq!(pending.wait(&mut buffer), Ok(100_000));
        assert_eq!(buffer, bytes[i * 100_000..][..100_000]);
    }
    let past = channel.start_read(2_000_000, 10).expect("sent").wait(&mut buffer);
    assert_eq!(past, Ok(0));
}

#[test]
fn what_channels_wait_for_the_disk_is_counted_for_verdicts() {
    let world = World::new();
    let channel = world.area.open(b"f", &CREATE).expect("opens");
    channel.write_at(b"twelve bytes", 0).expect("written");
    channel.sync().expect("synced");
    let mut counted = Measures::default();
    world.service.fill(&mut counted);
    assert_eq!(counted.work.written_bytes, 12);
    assert!(counted.work.operations >= 3, "{:?}", counted.work);
    // Where temporary files lie in memory there is no disk to wait for.
    let has_disk = DiskWatches::new(Arc::clone(&world.clock) as _).of(&world.path("data")).is_some();
    let waits: Vec<(u64, u64)> =
        counted.disks.iter().map(|disk| (disk.writes.events, disk.syncs.events)).collect();
    assert_eq!(waits, if has_disk { vec![(1, 1)] } else { vec![] });
}
