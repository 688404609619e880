//! The protocol's bytes: requests laid out by hand as linux/fuse.h does, answers taken apart.

use super::abi::{self, capability, setattr};
use super::device::DeviceError;
use super::handshake::{Offer, Trial, negotiate};
use super::nodes::Nodes;
use super::reply::{DirectoryEntry, InitAnswer, Reply, Shown};
use super::request::{self, Body as Parts, Header, Init, Malformed, Request, SetAttributes};
use crate::filesystem::arguments::NewMode;
use proptest::prelude::*;
use std::time::Duration;
use vazao_client::{Changes, RenameMode, SetTime, VolumeSpace, XattrMode};
use vazao_model::{Attributes, FileKind, InodeId, Timestamp};

/// Builds a body from numbers and strings.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u32(mut self, values: &[u32]) -> Body {
        values.iter().for_each(|v| self.0.extend(v.to_ne_bytes()));
        self
    }
    fn u64(mut self, values: &[u64]) -> Body {
        values.iter().for_each(|v| self.0.extend(v.to_ne_bytes()));
        self
    }
    fn bytes(mut self, bytes: &[u8]) -> Body {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A request in one run, as the device gives it.
fn decode(operation: u32, body: &[u8]) -> Result<Request<'_>, Malformed> {
    request::decode(operation, body.into())
}

fn header(bytes: &[u8]) -> Result<(Header, Parts<'_>), Malformed> {
    request::header(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[test]
fn a_header_is_taken_apart_and_a_length_beyond_the_bytes_is_refused() {
    let whole =
        Body::default().u32(&[43, abi::LOOKUP]).u64(&[77, 5]).u32(&[1000, 100, 4242, 0]).bytes(b"ab\0");
    let (head, body) = header(&whole.0).expect("valid");
    assert_eq!((head.operation, head.unique, head.node, head.uid, head.gid), (abi::LOOKUP, 77, 5, 1000, 100));
    assert_eq!(body, b"ab\0".as_slice().into());
    assert_eq!(header(&whole.0[..42]), Err(Malformed));
    assert_eq!(header(&whole.0[..7]), Err(Malformed));
}

#[test]
fn forgotten_nodes_come_one_by_one_or_many_at_once_with_their_counts() {
    let forgotten = |operation: u32, body: &Body| match decode(operation, &body.0) {
        Ok(Request::Forget(forgotten)) => Some(forgotten.iter(5).collect::<Vec<_>>()),
        _ => None,
    };
    assert_eq!(forgotten(abi::FORGET, &Body::default().u64(&[3])), Some(vec![(5, 3)]));
    let two = Body::default().u32(&[2, 0]).u64(&[7, 1, 8, 4]);
    assert_eq!(forgotten(abi::BATCH_FORGET, &two), Some(vec![(7, 1), (8, 4)]));
    let more_announced = Body::default().u32(&[u32::MAX, 0]).u64(&[7, 1]);
    assert_eq!(forgotten(abi::BATCH_FORGET, &more_announced), None);
    assert_eq!(forgotten(abi::FORGET, &Body::default().u32(&[3])), None);
}

#[test]
fn namespace_requests_carry_names_that_are_not_utf_8() {
    let body = Body::default().bytes(b"\xff\xfe\0");
    assert_eq!(decode(abi::LOOKUP, &body.0), Ok(Request::Lookup { name: b"\xff\xfe" }));
    let body = Body::default().bytes(b"link\0to/there\0");
    assert_eq!(decode(abi::SYMLINK, &body.0), Ok(Request::Symlink { name: b"link", target: b"to/there" }));
    let body = Body::default().u32(&[0o010_644, 0, 0o022, 0]).bytes(b"pipe\0");
    let pipe = Request::MakeNode {
        name: b"pipe",
        kind: FileKind::Fifo,
        mode: NewMode { bits: 0o644, umask: 0o022 },
        device: 0,
    };
    assert_eq!(decode(abi::MKNOD, &body.0), Ok(pipe));
    let body = Body::default().u64(&[9]).bytes(b"n\0");
    assert_eq!(decode(abi::LINK, &body.0), Ok(Request::Link { node: 9, name: b"n" }));
    assert_eq!(decode(abi::LOOKUP, b"no end"), Err(Malformed));
}

#[test]
fn rename_has_its_three_modes_and_refuses_a_whiteout() {
    let request = |flags: u32| {
        let body = Body::default().u64(&[12]).u32(&[flags, 0]).bytes(b"a\0b\0").0;
        decode(abi::RENAME2, &body).map(|request| format!("{request:?}"))
    };
    let expected =
        |mode| Ok(format!("{:?}", Request::Rename { name: b"a", new_node: 12, new_name: b"b", mode }));
    assert_eq!(request(0), expected(RenameMode::Replace));
    assert_eq!(request(1), expected(RenameMode::NoReplace));
    assert_eq!(request(2), expected(RenameMode::Exchange));
    assert_eq!(request(4), Err(Malformed));
    assert_eq!(request(3), Err(Malformed));
    let old = Body::default().u64(&[12]).bytes(b"a\0b\0").0;
    assert_eq!(decode(abi::RENAME, &old).map(|r| format!("{r:?}")), expected(RenameMode::Replace));
}

#[test]
fn setattr_passes_only_what_is_marked_and_times_before_1970_exactly() {
    let body = |valid: u32| {
        Body::default()
            .u32(&[valid, 0])
            .u64(&[31, 4096, 0, i64::MIN as u64, -2i64 as u64, 0])
            .u32(&[1, 800_000_000, 0, 0o100_755, 0, 1000, 100, 0])
            .0
    };
    let all = setattr::MODE | setattr::UID | setattr::GID | setattr::SIZE | setattr::ATIME | setattr::MTIME;
    let at = |seconds, nanoseconds| Some(SetTime::At(Timestamp { seconds, nanoseconds }));
    let changes = Changes {
        mode: Some(0o755),
        uid: Some(1000),
        gid: Some(100),
        size: Some(4096),
        accessed: at(i64::MIN, 1),
        modified: at(-2, 800_000_000),
    };
    let set = SetAttributes { changes, kill_set_id: true };
    let valid = all | setattr::KILL_SET_ID;
    assert_eq!(decode(abi::SETATTR, &body(valid)), Ok(Request::SetAttributes(set)));
    let now = Changes { modified: Some(SetTime::Now), ..Changes::default() };
    let set = SetAttributes { changes: now, kill_set_id: false };
    let valid = setattr::MTIME | setattr::MTIME_NOW;
    assert_eq!(decode(abi::SETATTR, &body(valid)), Ok(Request::SetAttributes(set)));
}

#[test]
fn file_requests_are_decoded() {
    let body =
        Body::default().u64(&[3, 1 << 40]).u32(&[3, abi::WRITE_KILL_SET_ID]).u64(&[0, 0]).bytes(b"abc");
    let write =
        Request::Write { handle: 3, offset: 1 << 40, bytes: b"abc", kill_set_id: true, appends: false };
    assert_eq!(decode(abi::WRITE, &body.0), Ok(write));
    let body = Body::default().u64(&[3, 0]).u32(&[4, 0]).u64(&[0, 0]).bytes(b"abc");
    assert_eq!(decode(abi::WRITE, &body.0), Err(Malformed), "more bytes announced than there are");
    let body = Body::default().u64(&[3, 8]).u32(&[100, 0]).u64(&[0, 0]);
    assert_eq!(decode(abi::READ, &body.0), Ok(Request::Read { handle: 3, offset: 8, length: 100 }));
    let body = Body::default().u32(&[0o1102, 0o100_640, 0o022, 0]).bytes(b"new\0");
    assert_eq!(
        decode(abi::CREATE, &body.0),
        Ok(Request::Create { name: b"new", flags: 0o1102, mode: NewMode { bits: 0o640, umask: 0o022 } })
    );
    let body = Body::default().u32(&[1, 0]).u64(&[8]);
    assert_eq!(decode(abi::GETATTR, &body.0), Ok(Request::GetAttributes { handle: Some(8) }));
}

#[test]
fn attribute_requests_are_decoded() {
    let body = Body::default().u32(&[3, 1]).bytes(b"user.a\0xyz");
    let set =
        Request::SetXattr { name: b"user.a", value: b"xyz", mode: XattrMode::Create, clear_set_group: false };
    assert_eq!(decode(abi::SETXATTR, &body.0), Ok(set));
    let body = Body::default().u32(&[3, 0, 1, 0]).bytes(b"user.a\0xyz");
    let set =
        Request::SetXattr { name: b"user.a", value: b"xyz", mode: XattrMode::Either, clear_set_group: true };
    assert_eq!(decode(abi::SETXATTR, &body.0), Ok(set));
    let body = Body::default().u32(&[64, 0]).bytes(b"user.a\0");
    assert_eq!(decode(abi::GETXATTR, &body.0), Ok(Request::GetXattr { name: b"user.a", length: 64 }));
}

#[test]
fn what_nobody_serves_is_told_so_that_the_kernel_does_it_itself() {
    let (statx, access) = (52, 34);
    for operation in [statx, access, 9999] {
        assert_eq!(decode(operation, &[0; 64]), Ok(Request::NotImplemented), "{operation}");
    }
    assert_eq!(decode(abi::BATCH_FORGET, &[]), Err(Malformed));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(operation in 0u32..60, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(operation, &body);
        let _ = header(&body);
    }

    #[test]
    fn a_request_cut_short_is_malformed_and_not_misread(cut in 0usize..84) {
        prop_assert_eq!(decode(abi::SETATTR, &[0; 88][..cut]), Err(Malformed));
    }
}

fn sample() -> Attributes {
    Attributes {
        inode: InodeId(4711),
        kind: FileKind::File,
        mode: 0o640,
        uid: 1000,
        gid: 100,
        size: 5000,
        allocated_bytes: 8192,
        links: 2,
        device: 0,
        accessed: Timestamp { seconds: -2, nanoseconds: 7 },
        modified: Timestamp { seconds: 10, nanoseconds: 8 },
        changed: Timestamp { seconds: 11, nanoseconds: 9 },
        version: 3,
        without_xattrs: false,
    }
}

fn shown(attributes: &Attributes) -> Shown<'_> {
    let (attribute_timeout, entry_timeout) = (Duration::from_millis(1500), Duration::from_secs(2));
    Shown { node: 4711, attributes, attribute_timeout, entry_timeout }
}

#[test]
fn an_entry_answer_has_the_kernels_layout() {
    let attributes = sample();
    let mut reply = Reply::with_capacity(0);
    reply.start(99);
    reply.put_entry_out(shown(&attributes));
    let bytes = reply.finish();
    assert_eq!(
        (bytes.len(), u32_at(bytes, 0) as usize, u32_at(bytes, 4), u64_at(bytes, 8)),
        (144, 144, 0, 99)
    );
    let entry = &bytes[16..];
    assert_eq!((u64_at(entry, 0), u64_at(entry, 8)), (4711, 0));
    assert_eq!((u64_at(entry, 16), u64_at(entry, 24)), (2, 1));
    assert_eq!((u32_at(entry, 32), u32_at(entry, 36)), (0, 500_000_000));
    let attr = &entry[40..];
    assert_eq!((u64_at(attr, 0), u64_at(attr, 8), u64_at(attr, 16)), (4711, 5000, 16));
    assert_eq!((u64_at(attr, 24) as i64, u64_at(attr, 32), u64_at(attr, 40)), (-2, 10, 11));
    assert_eq!([48, 52, 56].map(|at| u32_at(attr, at)), [7, 8, 9]);
    assert_eq!([60, 64, 68, 72, 76].map(|at| u32_at(attr, at)), [0o100_640, 2, 1000, 100, 0]);
    assert_eq!(attr.len(), 88);
}

#[test]
fn answers_have_the_kernels_lengths() {
    let attributes = sample();
    let length = |put: &dyn Fn(&mut Reply)| {
        let mut reply = Reply::with_capacity(0);
        reply.start(1);
        put(&mut reply);
        reply.length()
    };
    assert_eq!(length(&|r| r.put_attributes_out(shown(&attributes))), 104);
    assert_eq!(length(&|r| r.put_open_out(1, 0)), 16);
    assert_eq!(length(&|r| r.put_space_out(VolumeSpace::default())), 80);
    assert_eq!(length(&|r| r.put_length_out(1)), 8);
    let init = InitAnswer {
        read_ahead_bytes: 0,
        capabilities: 0,
        background_max: 0,
        write_bytes_max: 0,
        pages_max: 0,
    };
    assert_eq!(length(&|r| r.put_init_out(init)), 64);
}

#[test]
fn a_failure_after_half_an_answer_carries_nothing_of_it() {
    let mut reply = Reply::with_capacity(8);
    reply.start(5);
    reply.put_u64(1);
    reply.fail(17);
    let bytes = reply.finish();
    assert_eq!((bytes.len(), u32_at(bytes, 4) as i32), (16, -17));
}

#[test]
fn directory_entries_are_padded_and_stop_at_the_limit() {
    let attributes = sample();
    let entry = DirectoryEntry { inode: 4711, cookie: 55, kind: FileKind::File, name: b"abcdefghi" };
    let mut reply = Reply::with_capacity(0);
    reply.start(1);
    assert!(reply.put_directory_entry(entry, None, 80));
    assert_eq!(reply.length(), 40);
    assert!(reply.put_directory_entry(entry, None, 80));
    assert!(!reply.put_directory_entry(entry, None, 80));
    assert!(reply.put_directory_entry(entry, Some(Some(shown(&attributes))), 80 + 168));
    assert!(!reply.put_directory_entry(entry, Some(None), 80 + 168 + 167));
    let bytes = &reply.finish()[16..];
    assert_eq!((u64_at(bytes, 0), u64_at(bytes, 8)), (4711, 55));
    assert_eq!((u32_at(bytes, 16), u32_at(bytes, 20), &bytes[24..33]), (9, 8, &b"abcdefghi"[..]));
    assert_eq!((u64_at(bytes, 80), u64_at(bytes, 80 + 128)), (4711, 4711));
}

#[test]
fn init_takes_what_the_kernel_offers_and_refuses_one_that_is_too_old() {
    let offer = Offer {
        request_bytes_max: 1 << 20,
        read_ahead_bytes: 1 << 20,
        over_io_uring: false,
        check_permissions: true,
        finds_by_number: true,
        trial: Trial::default(),
    };
    let init = Init { major: 7, minor: 38, read_ahead_bytes: 131_072, capabilities: u64::MAX };
    let answer = negotiate(init, offer).expect("accepted");
    let wanted = capability::WANTED | capability::EXTENDED | capability::DIRECT_IO_ALLOW_MMAP;
    assert_eq!((answer.read_ahead_bytes, answer.capabilities), (131_072, wanted));
    assert_eq!(u32::from(answer.pages_max) * rustix::param::page_size() as u32, 1 << 20);
    let poor = negotiate(Init { capabilities: capability::ASYNC_READ, ..init }, offer).expect("accepted");
    assert_eq!(poor.capabilities, capability::ASYNC_READ);
    let with_uring = Offer { over_io_uring: true, ..offer };
    let with_both = wanted | capability::OVER_IO_URING;
    assert_eq!(negotiate(init, with_uring).expect("accepted").capabilities, with_both);
    let old = Init { capabilities: capability::WANTED | capability::EXTENDED, ..init };
    assert_eq!(negotiate(old, with_uring).expect("accepted").capabilities, capability::WANTED);
    let unchecked = negotiate(init, Offer { check_permissions: false, ..offer }).expect("accepted");
    assert_eq!(unchecked.capabilities, wanted & !capability::POSIX_ACL);
    let mut trial = Trial::default();
    assert!(trial.set("without=parallel_dirops") && trial.set("with=writeback_cache"));
    assert!(trial.set("background=3"));
    let tried = negotiate(init, Offer { trial, ..offer }).expect("accepted");
    let changed = wanted & !capability::PARALLEL_DIROPS | capability::WRITEBACK_CACHE;
    assert_eq!((tried.capabilities, tried.background_max), (changed, 3));
    for unknown in ["without=bread", "background=0", "background=x", "parallel_dirops", "x=async_dio"] {
        assert!(!trial.set(unknown), "{unknown}");
    }
    for (major, minor) in [(7, 27), (8, 0), (6, 40)] {
        let refused = negotiate(Init { major, minor, ..init }, offer);
        assert_eq!(refused, Err(DeviceError::Version(major, minor)));
    }
}

#[test]
fn capabilities_beyond_the_32nd_travel_in_a_second_field_both_ways() {
    let body = Body::default().u32(&[7, 42, 131_072, 1 << 30 | 1, 1 << 9, 0]);
    let Ok(Request::Init(init)) = decode(abi::INIT, &body.0) else { panic!("not understood") };
    assert_eq!(init.capabilities, 1 << 41 | 1 << 30 | 1);
    let body = Body::default().u32(&[7, 31, 131_072, 1, 1 << 9, 0]);
    let Ok(Request::Init(init)) = decode(abi::INIT, &body.0) else { panic!("not understood") };
    assert_eq!(init.capabilities, 1, "an old kernel has no second field, whatever lies there");
    let mut reply = Reply::with_capacity(64);
    reply.start(1);
    reply.put_init_out(InitAnswer {
        read_ahead_bytes: 0,
        capabilities: 1 << 41 | 1 << 30,
        background_max: 1,
        write_bytes_max: 1,
        pages_max: 1,
    });
    let bytes = reply.finish();
    assert_eq!((bytes.len(), u32_at(bytes, 16 + 12), u32_at(bytes, 16 + 32)), (80, 1 << 30, 1 << 9));
}

#[test]
fn a_request_in_parts_means_the_same_as_in_one_run_wherever_its_payload_begins() {
    let bodies = [
        (abi::LOOKUP, 0, Body::default().bytes(b"name\0")),
        (abi::SYMLINK, 0, Body::default().bytes(b"link\0to/there\0")),
        (abi::MKNOD, 16, Body::default().u32(&[0o010_644, 0, 0o022, 0]).bytes(b"pipe\0")),
        (abi::WRITE, 40, Body::default().u64(&[9, 4096]).u32(&[4, 0]).u64(&[0, 0]).bytes(b"data")),
        (abi::SETXATTR, 8, Body::default().u32(&[3, 0]).bytes(b"user.a\0xyz")),
        (abi::READ, 40, Body::default().u64(&[3, 8]).u32(&[100, 0]).u64(&[0, 0])),
    ];
    for (operation, fields_bytes, Body(run)) in bodies {
        let (fields, payload) = run.split_at(fields_bytes);
        let whole = decode(operation, &run).expect("valid");
        assert_eq!(request::decode(operation, Parts::new(fields, payload)), Ok(whole), "{operation}");
        let length = (40 + run.len()) as u32;
        let head = Body::default().u32(&[length, operation]).u64(&[77, 5]).u32(&[0, 0, 0, 0]).0;
        let mut in_place = [0; 128];
        in_place[..fields_bytes].copy_from_slice(fields);
        let payload_bytes = payload.len() as u32;
        let (header, parts) = request::parts(&head, &in_place, payload, payload_bytes).expect("valid");
        assert_eq!((header.unique, parts), (77, Parts::new(fields, payload)));
        assert_eq!(request::parts(&head, &in_place, payload, length), Err(Malformed));
        assert_eq!(request::parts(&head, &in_place[..3], &[], 0), Err(Malformed), "{operation}");
    }
}

#[test]
fn an_answer_too_long_for_lent_memory_becomes_an_error_and_the_memory_stays_where_it_is() {
    let memory = vec![0; 64];
    let address = memory.as_ptr();
    let mut reply = Reply::in_memory(memory, 32);
    reply.start(5);
    reply.put(&[7; 32]);
    assert_eq!(reply.outcome(), (0, 5, 32));
    reply.put(&[8; 1]);
    assert_eq!(reply.outcome(), (-abi::errno::IO, 5, 0));
    reply.start(6);
    assert_eq!(reply.outcome(), (0, 6, 0));
    assert_eq!(reply.into_memory().0.as_ptr(), address);
}

#[test]
fn the_root_of_a_mounted_subdirectory_is_node_one_both_ways() {
    let whole = Nodes { root: InodeId(1) };
    assert_eq!(
        (whole.inode(1), whole.node(InodeId(1)), whole.node(InodeId(9))),
        (InodeId(1), Some(1), Some(9))
    );
    let below = Nodes { root: InodeId(40) };
    assert_eq!((below.inode(1), below.inode(41)), (InodeId(40), InodeId(41)));
    assert_eq!((below.node(InodeId(40)), below.node(InodeId(41))), (Some(1), Some(41)));
    assert_eq!(below.node(InodeId(1)), None, "the volume's root would be taken for the mount's");
}

/// A write with `O_APPEND` that had waited for the lock on the file's end until its deadline failed with `EAGAIN`,
/// which event loops take for "wait until it is writable".
#[test]
fn only_who_asks_for_a_lock_without_waiting_is_told_eagain() {
    use super::outcome::Failure;
    use vazao_client::Error;
    use vazao_model::Code;
    assert_eq!(Failure::LockTaken.errno(), Code::Locked.errno());
    for &code in Code::ALL {
        assert_ne!(Failure::from(Error::from(code)).errno(), Code::Locked.errno(), "{code:?}");
    }
}
