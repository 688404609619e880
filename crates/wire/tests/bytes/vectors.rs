//! The vectors of docs/wire-vectors.json, which implementations in every language run.
//!
//! To add one, write its inputs with an empty result, run this test, and check what it says the result is by hand.

use prost::Message;
use serde_json::Value;
use vazao_model::checksum;
use vazao_model::distribution::{Distribution, Strip, Strips};
use vazao_model::{Code, GroupId, Layout};
use vazao_wire::frame::{FrameError, HEADER_BYTES, Header};
use vazao_wire::hello::{ClientHandshake, ServerHandshake};
use vazao_wire::key::ClusterKey;
use vazao_wire::proto;
use vazao_wire::service::Fault;

fn vectors() -> Value {
    let text = include_str!("../../../../docs/wire-vectors.json");
    serde_json::from_str(text).expect("the file is JSON")
}

fn list<'a>(vectors: &'a Value, name: &str) -> &'a Vec<Value> {
    let list = vectors[name].as_array().unwrap_or_else(|| panic!("no list {name}"));
    assert!(!list.is_empty(), "{name} is empty");
    list
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal digits");
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().expect("a number of 64 bits as text"),
        other => other.as_u64().expect("a number"),
    }
}

fn key(value: &Value) -> ClusterKey {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("key");
    std::fs::write(&path, value.as_str().expect("digits")).expect("written");
    let only_owner = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    std::fs::set_permissions(&path, only_owner).expect("chmod");
    ClusterKey::load(&path).expect("a key")
}

#[test]
fn headers_encode_and_decode_as_written_down() {
    for vector in list(&vectors(), "headers") {
        let header = Header {
            flags: number(&vector["flags"]) as u8,
            method: number(&vector["method"]) as u16,
            request_id: number(&vector["request_id"]),
            message_bytes: number(&vector["message_bytes"]) as u32,
            attachment_bytes: number(&vector["attachment_bytes"]) as u32,
            time: number(&vector["time"]) as u32,
        };
        assert_eq!(hex(&header.encode()), vector["bytes"].as_str().expect("text"), "{header:?}");
        let encoded: [u8; HEADER_BYTES] = bytes(&vector["bytes"]).try_into().expect("32 bytes");
        assert_eq!(Header::decode(&encoded), Ok(header));
    }
}

#[test]
fn bad_headers_are_refused_for_the_reason_written_down() {
    for vector in list(&vectors(), "bad_headers") {
        let encoded: [u8; HEADER_BYTES] = bytes(&vector["bytes"]).try_into().expect("32 bytes");
        let reason = match Header::decode(&encoded).expect_err("refused") {
            FrameError::Magic => "magic",
            FrameError::Version(_) => "version",
            FrameError::Checksum => "checksum",
            FrameError::Message(_) => "message",
            FrameError::Attachment(_) => "attachment",
        };
        assert_eq!(reason, vector["reason"].as_str().expect("text"));
    }
}

#[test]
fn handshakes_prove_the_key_as_written_down() {
    for vector in list(&vectors(), "handshakes") {
        let key = key(&vector["key"]);
        let (client, hello) = ClientHandshake::begin(bytes(&vector["client_nonce"]));
        assert_eq!(hex(&hello), vector["client_hello"].as_str().expect("text"));
        let (server, answer) =
            ServerHandshake::answer(&key, &hello, bytes(&vector["server_nonce"])).expect("answered");
        assert_eq!(hex(&answer), vector["server_hello"].as_str().expect("text"));
        let (_, proof) = client.finish(&key, &answer).expect("the server's proof holds");
        assert_eq!(hex(&proof), vector["client_proof"].as_str().expect("text"));
        server.finish(&key, &proof).expect("the client's proof holds");
    }
}

#[test]
fn checksums_are_as_written_down() {
    for vector in list(&vectors(), "checksums") {
        let data = bytes(&vector["bytes"]).repeat(number(&vector["times"]) as usize);
        let offset = number(&vector["offset"]);
        let found: Vec<String> =
            checksum::piece_checksums(offset, &data).iter().map(|c| format!("{c:08x}")).collect();
        let expected: Vec<&str> = list(vector, "pieces").iter().map(|p| p.as_str().expect("text")).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn messages_encode_as_written_down() {
    let vectors = vectors();
    let expected = |name: &str| vectors["messages"][name].as_str().unwrap_or_default().to_owned();
    let object = proto::ObjectAddress {
        target: 3,
        inode: 1 << 40,
        generation: 2,
        slot: 1,
        epoch: 9,
        capability: vec![],
        group: 0,
        change: 0,
        attempt: 0,
        given_up: vec![],
        forward: None,
        relayed: false,
    };
    let write = proto::WriteRequest {
        object: Some(object),
        offset: 262_144,
        checksums: vec![0xE306_9283, 1],
        sync: false,
        must_exist: false,
        lent: None,
    };
    let once = proto::Once { session: 0x0123_4567_89AB_CDEF, slot: 5, sequence: 77, seat: 0 };
    let create = proto::CreateRequest {
        once: Some(once),
        parent: 1,
        name: b"caf\xE9".to_vec(),
        kind: 1,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        exclusive: true,
        ..Default::default()
    };
    let failure = proto::Failure::from(&Fault::new(Code::NotFound, "name \"a\" in directory i1"));
    let of_membership = Fault::new(Code::WrongTarget, "placement group 1048577").as_of(300);
    let of_membership = proto::Failure::from(&of_membership);
    assert_eq!(hex(&write.encode_to_vec()), expected("WriteRequest"));
    assert_eq!(hex(&create.encode_to_vec()), expected("CreateRequest"));
    assert_eq!(hex(&failure.encode_to_vec()), expected("Failure"));
    assert_eq!(hex(&of_membership.encode_to_vec()), expected("FailureOfMembership"));
}

/// Whole frames: header, message and attachment one after the other.
#[test]
fn frames_are_as_written_down() {
    for vector in list(&vectors(), "frames") {
        let (message, attachment) = (bytes(&vector["message"]), bytes(&vector["attachment"]));
        let header = Header {
            flags: number(&vector["flags"]) as u8,
            method: number(&vector["method"]) as u16,
            request_id: number(&vector["request_id"]),
            message_bytes: message.len() as u32,
            attachment_bytes: attachment.len() as u32,
            time: number(&vector["time"]) as u32,
        };
        let frame = [header.encode().to_vec(), message, attachment].concat();
        assert_eq!(hex(&frame), vector["bytes"].as_str().expect("text"), "{}", vector["name"]);
        let head: [u8; HEADER_BYTES] = frame[..HEADER_BYTES].try_into().expect("32 bytes");
        assert_eq!(Header::decode(&head), Ok(header));
    }
}

#[test]
fn records_of_placement_groups_encode_as_written_down() {
    let member = |target, run, standing, since| proto::GroupMember { target, run, standing, since };
    let group = proto::GroupMembers {
        group: GroupId::FIRST + 2,
        epoch: 5,
        members: vec![member(1, 7, 1, 0), member(2, 9, 2, 5)],
        losses: 1,
        why: Some(proto::MemberChange { kind: 1, targets: vec![2], ..Default::default() }),
    };
    compare(&vectors(), "GroupMembers", &group);
}

/// A message encodes to the bytes written down, and these decode to it.
fn compare<M: Message + Default + PartialEq>(vectors: &Value, name: &str, message: &M) {
    let expected = vectors["messages"][name].as_str().unwrap_or_else(|| panic!("no message {name}"));
    assert_eq!(hex(&message.encode_to_vec()), expected, "{name}");
    assert!(M::decode(bytes(&vectors["messages"][name]).as_slice()).as_ref() == Ok(message), "{name}");
}

fn identity() -> proto::FileIdentity {
    proto::FileIdentity { device: 0xFD01, inode: 1 << 40, born_ns: 1_700_000_000_123_456_789 }
}

fn attributes() -> proto::Attributes {
    let time = |seconds, nanoseconds| Some(proto::Timestamp { seconds, nanoseconds });
    proto::Attributes {
        inode: 1 << 40,
        kind: 1,
        mode: 0o640,
        uid: 1000,
        gid: 1000,
        size: 1 << 33,
        allocated_bytes: 4096,
        links: 1,
        accessed: time(-1, 999_999_999),
        modified: time(1_700_000_000, 0),
        changed: time(1_700_000_000, 5),
        ..Default::default()
    }
}

/// Layouts of all versions, made without this program from the documents: a file's bytes are found by them for good.
#[test]
fn layouts_of_every_distribution_encode_as_written_down() {
    let v = vectors();
    let groups = |ids: &[u32]| ids.iter().copied().map(GroupId).collect::<Vec<_>>();
    let strip = |slot, units: u64| Strip { slot, bytes: units << 16 };
    let strips = Strips::new(vec![strip(0, 1), strip(1, 3), strip(0, 1)]).expect("valid");
    let unit_bytes = 1 << 18;
    let layouts = [
        ("stripe", 1, Distribution::SimpleStripe { unit_bytes }, groups(&[3, 200, 1]), 0b101, 1),
        ("strips", 300, Distribution::VaryingStrips(strips), groups(&[3, 1]), 0b11, 299),
        ("groups", 7, Distribution::Groups { unit_bytes, groups: 2, factor: 8 }, groups(&[1, 2, 3, 4]), 9, 7),
        ("local", 2, Distribution::Local { is_away: true }, groups(&[9]), 1, 2),
        ("placement groups", 5, Distribution::SimpleStripe { unit_bytes }, groups(&[1 << 20, 3]), 0b11, 5),
    ];
    for (name, generation, distribution, groups, written_slots, life) in layouts {
        let layout = Layout { generation, distribution, groups, written_slots, life };
        compare(&v, &format!("Layout, {name}"), &proto::Layout::from(&layout));
        let bytes = bytes(&v["messages"][format!("Layout, {name}")]);
        let message = proto::Layout::decode(bytes.as_slice()).expect("decodes");
        assert_eq!(Layout::try_from(message).expect("is valid"), layout);
    }
}

#[test]
fn messages_of_areas_encode_as_written_down() {
    let v = vectors();
    let area = || "data".to_owned();
    compare(&v, "FileIdentity", &identity());
    let path = b"caf\xE9/x".to_vec();
    compare(
        &v,
        "AreaStatRequest",
        &proto::AreaStatRequest { area: area(), path, follow: true, ..Default::default() },
    );
    let (some, id) = (Some(attributes()), Some(identity()));
    compare(
        &v,
        "AreaStatResponse",
        &proto::AreaStatResponse { attributes: some, identity: id, ..Default::default() },
    );
    let list = proto::AreaListRequest {
        area: area(),
        path: Vec::new(),
        cookie: 1 << 62,
        limit: 4096,
        with_attributes: true,
    };
    compare(&v, "AreaListRequest", &list);
    let rename = proto::AreaRenameRequest {
        area: area(),
        path: b"a".to_vec(),
        new_path: b"b/c".to_vec(),
        mode: 1,
        nonce: 0x0102_0304_0506_0708,
    };
    compare(&v, "AreaRenameRequest", &rename);
    let set = proto::AreaSetAttributesRequest {
        area: area(),
        path: b"f".to_vec(),
        size: Some(0),
        modified: None,
        accessed: None,
        mode: None,
    };
    let modified = Some(proto::Timestamp { seconds: 1_700_000_000, nanoseconds: 1 });
    compare(&v, "AreaSetAttributesRequest", &proto::AreaSetAttributesRequest { modified, ..set });
}

#[test]
fn messages_of_channels_encode_as_written_down() {
    let v = vectors();
    let channel = 0xFEDC_BA98_7654_3210;
    let open = proto::OpenChannelRequest {
        area: "data".to_owned(),
        path: b"f".to_vec(),
        client: 7,
        channel,
        read: true,
        write: true,
        create: true,
        mode: 0o644,
        identity: Some(identity()),
        ..Default::default()
    };
    compare(&v, "OpenChannelRequest", &open);
    let opened = proto::OpenChannelResponse {
        attributes: Some(attributes()),
        identity: Some(identity()),
        lease_ms: 60_000,
        created: true,
    };
    compare(&v, "OpenChannelResponse", &opened);
    let read = proto::ChannelReadRequest { channel, offset: (1 << 63) - 1, length: 4 << 20 };
    compare(&v, "ChannelReadRequest", &read);
    let checksums = vec![0xE306_9283, 0];
    compare(&v, "ChannelReadResponse", &proto::ChannelReadResponse { checksums, size: 300_000 });
    let range = |offset, length| proto::ByteRange { offset, length };
    let ranges = vec![range(0, 16), range(1 << 33, 300)];
    compare(&v, "ChannelReadListRequest", &proto::ChannelReadListRequest { channel: 9, ranges });
    let (lengths, checksums) = (vec![16, 300, 0], vec![1, u32::MAX]);
    let listed = proto::ChannelReadListResponse { lengths, checksums, size: 1 << 40 };
    compare(&v, "ChannelReadListResponse", &listed);
    let write = proto::ChannelWriteRequest { channel: 9, offset: 65_535, checksums: vec![5, 6], sync: true };
    compare(&v, "ChannelWriteRequest", &write);
    let sync = proto::ChannelSyncRequest { channel: 9, boot: 0x1122_3344_5566_7788 };
    compare(&v, "ChannelSyncRequest", &sync);
    compare(&v, "RenewChannelsRequest", &proto::RenewChannelsRequest { client: 7 });
    let object = proto::ObjectAddress { target: 3, inode: 77, generation: 2, slot: 1, ..Default::default() };
    let report = proto::ReportDamageRequest { object: Some(object), offset: 131_072, missing: true };
    compare(&v, "ReportDamageRequest", &report);
    let object = proto::ObjectAddress {
        target: 3,
        inode: 77,
        generation: 2,
        slot: 1,
        change: 0x0123_4567_89AB_CDEF,
        attempt: 2,
        given_up: vec![0x0123_4567_89AB_CDE0],
        ..Default::default()
    };
    let cut = proto::TruncateObjectRequest { object: Some(object), length: 131_072, must_exist: true };
    compare(&v, "TruncateObjectRequest", &cut);
}
