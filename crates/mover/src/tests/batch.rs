//! Many small files in one request.

use super::{World, noise};
use crate::outgoing::batch::{BatchFile, FILES_MAX, Sent, send_batch};
use crate::source::Source;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::checksum::crc32c;
use vazao_wire::proto;

fn file(world: &World, source: Arc<dyn Source>, name: &str) -> BatchFile {
    BatchFile { source, to: world.to(name), overwrite: 0 }
}

#[test]
fn a_batch_of_files_arrives_whole_with_times_and_permissions_and_leaves_no_part() {
    let world = World::new();
    std::fs::create_dir(world.path("in/d")).expect("made");
    let names: Vec<String> =
        (0..FILES_MAX).map(|i| if i % 3 == 0 { format!("d/f{i}") } else { format!("f{i}") }).collect();
    let source = |i: usize| world.put(&format!("f{i}"), &noise(i * 131));
    let files: Vec<BatchFile> =
        names.iter().enumerate().map(|(i, name)| file(&world, source(i), name)).collect();
    let around = world.around();
    for read_back in [false, true] {
        let (sent, bytes) = send_batch(&files, &around, read_back);
        assert!(sent.iter().all(|sent| *sent == Ok(Sent::Done)), "{sent:?}");
        assert_eq!(bytes, (0..FILES_MAX as u64).map(|i| i * 131).sum::<u64>());
    }
    for (i, name) in names.iter().enumerate() {
        assert!(world.arrived(name) == Some(noise(i * 131)), "{name}");
        let from = world.path("out").join(format!("f{i}")).metadata().expect("status");
        let to = world.path("in").join(name).metadata().expect("status");
        assert_eq!((to.mode(), to.mtime_nsec()), (from.mode(), from.mtime_nsec()));
    }
    assert!(world.names().iter().all(|name| !name.ends_with(".part")), "{:?}", world.names());
}

#[test]
fn one_that_cannot_be_put_down_fails_alone() {
    let world = World::new();
    std::fs::create_dir(world.path("in/taken")).expect("made");
    let good = world.put("good", b"good");
    let gone = world.put("gone", &noise(5_000));
    let large = world.put("large", b"small");
    let files = [
        file(&world, Arc::clone(&good), "a"),
        file(&world, Arc::clone(&good), "taken"),
        file(&world, Arc::clone(&good), "missing/x"),
        file(&world, Arc::clone(&good), "../out/y"),
        file(&world, large, "large"),
        file(&world, gone, "gone"),
        file(&world, good, "b"),
    ];
    std::fs::write(world.path("out/large"), noise(300_000)).expect("grown");
    let (sent, _) = send_batch(&files, &world.around(), false);
    let codes: Vec<Option<Code>> =
        sent.iter().map(|sent| sent.as_ref().err().map(|fault| fault.code)).collect();
    let expected = [
        None,
        Some(Code::IsDirectory),
        Some(Code::NotFound),
        Some(Code::AccessDenied),
        Some(Code::Stale),
        None,
        None,
    ];
    assert_eq!(codes, expected, "{sent:?}");
    assert!(sent[1].as_ref().is_err_and(|fault| fault.detail.contains("n9")), "{sent:?}");
    assert_eq!((world.arrived("a"), world.arrived("b")), (Some(b"good".to_vec()), Some(b"good".to_vec())));
    assert!(world.arrived("gone") == Some(noise(5_000)));
    assert!(world.names().iter().all(|name| !name.ends_with(".part")), "{:?}", world.names());
}

#[test]
fn what_is_there_is_kept_or_replaced_as_the_job_says() {
    let world = World::new();
    let source = world.put("f", b"new");
    let put = |overwrite| {
        let files = [BatchFile { source: Arc::clone(&source), to: world.to("f"), overwrite }];
        send_batch(&files, &world.around(), false).0[0].clone().expect("sent")
    };
    std::fs::write(world.path("in/f"), "there").expect("written");
    assert_eq!((put(1), world.arrived("f")), (Sent::Skipped, Some(b"there".to_vec())));
    assert_eq!(put(2), Sent::Skipped, "what is there is younger");
    assert_eq!((put(3), world.arrived("f")), (Sent::Done, Some(b"new".to_vec())));
    assert_eq!((put(3), put(2), put(0)), (Sent::Skipped, Sent::Skipped, Sent::Done));
}

#[test]
fn a_batch_that_is_none_is_refused_and_writes_nothing() {
    let world = World::new();
    let one = |path: &str, size: u64, checksum: u32| proto::CopyBatchFile {
        begin: Some(proto::CopyBeginRequest {
            copy: vec![path.len() as u8; 16],
            area: "in".into(),
            path: path.into(),
            size,
            block_bytes: 1 << 20,
            ..Default::default()
        }),
        checksum,
        overwrite: 0,
    };
    let ask = |files: Vec<proto::CopyBatchFile>, bytes: &[u8]| {
        let request = proto::CopyBatchRequest { files, read_back: false };
        let (clock, address) = (&world.clock, world.address());
        let deadline_ns = clock.now_ns() + 10_000_000_000;
        let pending = vazao_wire::transport::submit::<vazao_wire::op::CopyBatch>(
            &*world.transport,
            &address,
            &request,
            bytes,
            deadline_ns,
        );
        pending.wait().map(|(answer, _)| answer.outcomes)
    };
    for (files, bytes) in [
        (vec![one("x", 5, 0)], &b"1234"[..]),
        (vec![one("x", u64::MAX, 0), one("xx", 6, 0)], b"12345"),
        ((0..FILES_MAX + 1).map(|_| one("x", 0, 0)).collect(), b""),
    ] {
        assert_eq!(ask(files, bytes).expect_err("is refused").code, Code::BadRequest);
    }
    let sum = crc32c(b"12345");
    let outcomes = ask(vec![one("x", 5, sum ^ 1), one("yy", 5, sum)], b"1234512345").expect("answered");
    assert_eq!(Code::from_number(outcomes[0].code), Code::Corrupt);
    assert_eq!(outcomes[1].code, 0);
    assert_eq!((world.arrived("x"), world.arrived("yy")), (None, Some(b"12345".to_vec())));
    let nameless = ask(vec![proto::CopyBatchFile::default()], b"").expect("answered");
    assert_ne!(nameless[0].code, 0);
}

#[test]
fn a_limit_of_bandwidth_holds_for_batches_and_an_order_to_stop_is_heard() {
    let world = World::new();
    let source = world.put("f", &noise(200_000));
    let files = [file(&world, source, "f")];
    let around = world.around_with(Default::default(), 400_000);
    let started_ns = world.clock.now_ns();
    (0..3).for_each(|_| assert_eq!(send_batch(&files, &around, false).0[0], Ok(Sent::Done)));
    let seconds = (world.clock.now_ns() - started_ns) as f64 / 1e9;
    assert!(seconds > 0.8, "{seconds}");
    assert!(around.counts.limit_ns.get() > 0);
    around.control.set(crate::Order::Cancel);
    let (sent, _) = send_batch(&files, &around, false);
    assert_eq!(sent[0].as_ref().expect_err("stops").code, Code::Cancelled);
}

/// A sender died while its request was in work, came back and sent it again: both wrote under one temporary name, and
/// the first took the name from under the second, which failed with "no such file".
#[test]
fn the_same_files_sent_twice_at_once_arrive_and_none_fails_for_good() {
    let world = World::new();
    let files: Vec<BatchFile> = (0..40)
        .map(|i| file(&world, world.put(&format!("f{i}"), &noise(2_000 + i)), &format!("f{i}")))
        .collect();
    for _ in 0..5 {
        let send = || send_batch(&files, &world.around(), false).0;
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(send);
            (send(), other.join().expect("ended"))
        });
        for (i, (first, second)) in first.iter().zip(&second).enumerate() {
            let is_fine = |sent: &Result<Sent, _>| match sent {
                Ok(sent) => *sent == Sent::Done,
                Err(vazao_wire::service::Fault { code, .. }) => *code == Code::Overloaded,
            };
            assert!(is_fine(first) && is_fine(second), "{i}: {first:?} {second:?}");
            assert!(first.is_ok() || second.is_ok());
            assert!(world.arrived(&format!("f{i}")) == Some(noise(2_000 + i)));
        }
    }
    assert!(world.names().iter().all(|name| !name.ends_with(".part")), "{:?}", world.names());
}
