//! Requests as they come from the network: damaged, nonsensical, random.

use super::{NODE, World};
use rand::prelude::*;
use vazao_client::area::ChannelOptions;
use vazao_model::Code;
use vazao_wire::operation::Method;
use vazao_wire::transport::{Transport, call, submit};
use vazao_wire::{op, proto};

const DEADLINE_NS: u64 = u64::MAX / 2;

fn open(world: &World) -> u64 {
    let request = proto::OpenChannelRequest {
        area: "data".into(),
        path: b"f".to_vec(),
        client: 1,
        channel: 77,
        read: true,
        write: true,
        create: true,
        mode: 0o600,
        ..Default::default()
    };
    call::<op::OpenChannel>(&*world.transport, NODE, &request, DEADLINE_NS).expect("opens");
    77
}

#[test]
fn bytes_that_do_not_match_their_checksums_are_not_written() {
    let world = World::new();
    let channel = open(&world);
    let good = vazao_model::checksum::piece_checksums(0, &[7; 100_000]);
    for checksums in [vec![], vec![good[0]], vec![good[0], good[1] ^ 1], [&good[..], &[0]].concat()] {
        let request = proto::ChannelWriteRequest { channel, offset: 0, checksums, sync: false };
        let answer =
            submit::<op::ChannelWrite>(&*world.transport, NODE, &request, &[7; 100_000], DEADLINE_NS).wait();
        assert_eq!(answer.expect_err("damaged").code, Code::Corrupt);
    }
    assert_eq!(std::fs::read(world.path("data/f")).expect("is there"), b"");
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    let world = World::new();
    let channel = open(&world);
    let range = |offset, length| proto::ByteRange { offset, length };
    let refused = [
        vec![],
        vec![range(0, u32::MAX)],
        vec![range(u64::MAX, 1)],
        vec![range(0, 4 << 20), range(0, 1)],
        vec![range(0, 1); 1025],
    ];
    for ranges in refused {
        let request = proto::ChannelReadListRequest { channel, ranges };
        let answer = call::<op::ChannelReadList>(&*world.transport, NODE, &request, DEADLINE_NS);
        assert_eq!(answer.expect_err("refused").code, Code::BadRequest);
    }
    let request = proto::ChannelSyncRequest { channel, boot: 1 };
    let answer = call::<op::ChannelSync>(&*world.transport, NODE, &request, DEADLINE_NS);
    assert!(answer.expect_err("another boot").detail.contains("lost power"));
    let request = proto::ChannelReadRequest { channel: 5, offset: 0, length: 1 };
    let answer = call::<op::ChannelRead>(&*world.transport, NODE, &request, DEADLINE_NS);
    assert_eq!(answer.expect_err("never opened").code, Code::BadHandle);
}

#[test]
fn random_messages_to_every_method_are_answered_and_break_nothing() {
    use prost::Message;
    let world = World::new();
    world.put("outside/secret", b"secret");
    open(&world);
    let mut random = StdRng::seed_from_u64(5);
    let samples = [
        proto::OpenChannelRequest {
            area: "data".into(),
            path: b"f".to_vec(),
            client: 1,
            channel: 9,
            read: true,
            ..Default::default()
        }
        .encode_to_vec(),
        proto::AreaRenameRequest {
            area: "data".into(),
            path: b"f".to_vec(),
            new_path: b"../outside/f".to_vec(),
            mode: 0,
            nonce: 0,
        }
        .encode_to_vec(),
        proto::AreaListRequest {
            area: "data".into(),
            cookie: 1 << 40,
            limit: 9,
            with_attributes: true,
            ..Default::default()
        }
        .encode_to_vec(),
        proto::ChannelReadListRequest {
            channel: 77,
            ranges: vec![proto::ByteRange { offset: 1, length: 5 }],
        }
        .encode_to_vec(),
        proto::ChannelReadRequest { channel: 77, offset: 1, length: 5 }.encode_to_vec(),
    ];
    let methods: Vec<Method> = Method::ALL.iter().copied().filter(|m| m.number() >> 8 == 3).collect();
    let wanted = std::env::var("VAZAO_FUZZ_REQUESTS").ok();
    for round in 0..wanted.map_or(30_000, |count| count.parse().expect("a number")) {
        let mut message = samples[round % samples.len()].clone();
        for _ in 0..random.random_range(0..4) {
            if random.random_bool(0.2) {
                message.truncate(random.random_range(0..=message.len()));
            } else if let Some(byte) = message.choose_mut(&mut random) {
                *byte = random.random();
            }
        }
        let method = methods[random.random_range(0..methods.len())];
        // Files of any length a message asks for are sparse and go with the directory.
        let _ = world.transport.submit(NODE, method, &message, &[1; 8], DEADLINE_NS).wait();
    }
    assert_eq!(std::fs::read(world.path("outside/secret")).expect("is there"), b"secret");
    assert_eq!(std::fs::read_dir(world.path("outside")).expect("listed").count(), 1);
    let channel =
        world.area.open(b"sound", &ChannelOptions { write: true, create: true, ..Default::default() });
    channel.expect("still serves").write_at(b"x", 0).expect("still writes");
}
