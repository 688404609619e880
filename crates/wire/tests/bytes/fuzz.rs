//! Every decoder of bytes from the network, fed with damaged and invented input. Nothing may panic or believe a wrong
//! length.
//!
//! The inputs are mutations of valid ones under a fixed seed, so that a failure repeats; `VAZAO_FUZZ_ROUNDS` makes it
//! longer.

use prost::Message;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use vazao_model::{Attributes, ClusterMap, Layout};
use vazao_wire::frame::{HEADER_BYTES, Header};
use vazao_wire::hello::{ClientHandshake, ServerHandshake};
use vazao_wire::key::ClusterKey;
use vazao_wire::messages::members;
use vazao_wire::operation::{Operation, op};
use vazao_wire::proto;

/// Seeded damage.
struct Vandal(StdRng);

impl Vandal {
    fn below(&mut self, limit: usize) -> usize {
        self.0.random_range(0..limit.max(1))
    }

    /// Damages `bytes` in one of the ways networks and enemies do.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 0x7F, 0x80, 0xFF][self.below(4)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, self.0.random()),
            4 if !bytes.is_empty() => {
                let piece = bytes[at..].to_vec();
                bytes.extend(piece);
            }
            _ => bytes.extend((0..self.below(40)).map(|i| (i * 37) as u8)),
        }
    }
}

fn rounds() -> usize {
    std::env::var("VAZAO_FUZZ_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(100_000)
}

fn fuzz(seed: u64, samples: &[Vec<u8>], target: impl Fn(&[u8])) {
    let mut vandal = Vandal(StdRng::seed_from_u64(seed));
    for _ in 0..rounds() {
        let mut bytes = samples[vandal.below(samples.len())].clone();
        for _ in 0..=vandal.below(4) {
            vandal.damage(&mut bytes);
        }
        bytes.truncate(4096);
        target(&bytes);
    }
}

#[test]
fn headers() {
    let valid = Header {
        flags: 1,
        method: 0x0201,
        request_id: 9,
        message_bytes: 100,
        attachment_bytes: 65536,
        time: 5,
    };
    fuzz(1, &[valid.encode().to_vec()], |bytes| {
        if let Ok(Some(header)) = Header::peek(bytes) {
            assert!(header.frame_bytes() <= HEADER_BYTES + 5 * 1024 * 1024);
        }
    });
}

#[test]
fn handshakes() {
    let key = ClusterKey::insecure();
    let (_, hello) = ClientHandshake::begin(vec![1; 32]);
    let (server, answer) = ServerHandshake::answer(&key, &hello, vec![2; 32]).expect("valid");
    drop(server);
    fuzz(2, std::slice::from_ref(&hello), |bytes| drop(ServerHandshake::answer(&key, bytes, vec![2; 32])));
    fuzz(3, &[answer], |bytes| drop(ClientHandshake::begin(vec![1; 32]).0.finish(&key, bytes)));
    let proof = proto::ClientProof { proof: vec![3; 32] }.encode_to_vec();
    fuzz(4, &[proof], |bytes| {
        let (server, _) = ServerHandshake::answer(&key, &hello, vec![2; 32]).expect("valid");
        assert!(server.finish(&key, bytes).is_err(), "a made-up proof was accepted");
    });
}

fn decode_both<O: Operation>(bytes: &[u8]) {
    drop(O::Request::decode(bytes));
    drop(O::Response::decode(bytes));
}

#[test]
fn every_message_of_the_table() {
    let inode = proto::Inode {
        start: 7,
        unwritten: vec![proto::Extent { start: 1, length: 2 }],
        attributes: Some(proto::Attributes { inode: 5, kind: 1, size: 1 << 50, ..Default::default() }),
        layout: Some(proto::Layout {
            distribution: 1,
            unit_bytes: 65536,
            groups: vec![1, 1 << 20],
            version: 1,
            ..Default::default()
        }),
        contents: Some(vec![7; 100]),
    };
    let entry =
        proto::DirectoryEntry { name: b"a name".to_vec(), inode: 5, cookie: u64::MAX, ..Default::default() };
    let samples = [
        proto::LookupResponse { inode: Some(inode) }.encode_to_vec(),
        proto::ListResponse { entries: vec![entry; 5], end: true, parent: 1 }.encode_to_vec(),
        proto::ReadResponse { checksums: vec![1, 2, 3], object_length: 1 << 40, missing: false }
            .encode_to_vec(),
        proto::RegisterNodeRequest {
            targets: vec![Default::default(); 3],
            name: "n1".into(),
            seen: Some(proto::HistoryMark { lineage: 1, start: 2, run: 3, position: 4 }),
            ..Default::default()
        }
        .encode_to_vec(),
        proto::RegisterNodeResponse {
            verdicts: vec![proto::Verdict { what: 3, incarnation: 5, why: "old".into(), process: 9 }; 2],
            warnings: vec!["a copy".into()],
            groups: vec![proto::Group { id: 1 << 20, epoch: 7, members: vec![1], ..Default::default() }],
            ..Default::default()
        }
        .encode_to_vec(),
    ];
    fuzz(5, &samples, |bytes| {
        decode_both::<op::OpenSession>(bytes);
        decode_both::<op::RenewSession>(bytes);
        decode_both::<op::RegisterNode>(bytes);
        decode_both::<op::AcceptOld>(bytes);
        decode_both::<op::ReplaceTarget>(bytes);
        decode_both::<op::GetGroups>(bytes);
        decode_both::<op::ReportMembers>(bytes);
        decode_both::<op::KeepAlive>(bytes);
        decode_both::<op::Lookup>(bytes);
        decode_both::<op::Resolve>(bytes);
        decode_both::<op::SetAttributes>(bytes);
        decode_both::<op::Open>(bytes);
        decode_both::<op::Create>(bytes);
        decode_both::<op::Rename>(bytes);
        decode_both::<op::List>(bytes);
        decode_both::<op::Commit>(bytes);
        decode_both::<op::SetXattr>(bytes);
        decode_both::<op::Read>(bytes);
        decode_both::<op::Write>(bytes);
        decode_both::<op::SyncObjects>(bytes);
        decode_both::<op::ListObjects>(bytes);
    });
}

#[test]
fn nouns_made_of_messages() {
    let layout = proto::Layout {
        distribution: 1,
        unit_bytes: 1 << 18,
        groups: vec![1, 2, 3],
        version: 1,
        ..Default::default()
    };
    let attributes =
        proto::Attributes { inode: 5, kind: 2, modified: Some(Default::default()), ..Default::default() };
    let map = proto::ClusterMap {
        nodes: vec![Default::default()],
        targets: vec![Default::default()],
        refusals: vec![Default::default()],
        groups: vec![proto::Group { id: 1 << 20, epoch: 7, members: vec![1, 2], ..Default::default() }; 3],
        ..Default::default()
    };
    fuzz(6, &[layout.encode_to_vec()], |bytes| {
        if let Some(layout) = proto::Layout::decode(bytes).ok().and_then(|l| Layout::try_from(l).ok()) {
            let pieces = layout.distribution.pieces(u64::MAX - 10, 5, layout.width()).count();
            assert!(pieces <= 2 && layout.width() >= 1);
        }
    });
    fuzz(7, &[attributes.encode_to_vec()], |bytes| {
        drop(proto::Attributes::decode(bytes).map(Attributes::try_from));
    });
    let members = vec![proto::GroupMember { target: 1, run: 7, standing: 1, since: 0 }];
    let why = Some(proto::MemberChange { kind: 1, targets: vec![2], ..Default::default() });
    let group = proto::GroupMembers { group: 1 << 20, epoch: 5, members, losses: 1, why };
    fuzz(9, &[group.encode_to_vec()], |bytes| {
        if let Some((_, membership)) =
            proto::GroupMembers::decode(bytes).ok().and_then(|g| members::membership(&g).ok())
        {
            assert!(membership.is_whole());
        }
    });
    fuzz(8, &[map.encode_to_vec()], |bytes| drop(proto::ClusterMap::decode(bytes).map(ClusterMap::from)));
}
