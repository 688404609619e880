//! The vectors of docs/wire-vectors.json, which implementations in every language run.
//!
//! To add one, write its inputs with an empty result, run this test, and check what it says the result is by hand.

use prost::Message;
use serde_json::Value;
use vazao_model::Code;
use vazao_model::checksum;
use vazao_wire::frame::{FrameError, HEADER_BYTES, Header};
use vazao_wire::hello::{ClientHandshake, ServerHandshake};
use vazao_wire::key::ClusterKey;
use vazao_wire::proto;

fn vectors() -> Value {
    let text = include_str!("../../../docs/wire-vectors.json");
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
    };
    let write = proto::WriteRequest {
        object: Some(object),
        offset: 262_144,
        checksums: vec![0xE306_9283, 1],
        sync: false,
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
    let failure =
        proto::Failure { code: Code::NotFound.number(), detail: "name \"a\" in directory i1".to_owned() };
    assert_eq!(hex(&write.encode_to_vec()), expected("WriteRequest"));
    assert_eq!(hex(&create.encode_to_vec()), expected("CreateRequest"));
    assert_eq!(hex(&failure.encode_to_vec()), expected("Failure"));
}
