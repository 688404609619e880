//! A metadata service that stops answering, and answers again.

use super::*;
use vazao_model::Code;
use vazao_model::ids::ROOT;
use vazao_wire::inline::Fate;

/// 47 programs that each looked a name up in one directory ended after 161 s: the kernel asks for one after the other.
#[test]
fn calls_after_one_that_waited_in_vain_find_out_within_a_second_until_the_service_is_back() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    create(&client, "here").close().unwrap();
    cluster.transport.set_fates(Some(Box::new(|_, _| Fate::LoseRequest)));
    let ask = || {
        let started_ns = cluster.clock.now_ns();
        let outcome = client.lookup(ROOT, b"here");
        (outcome, (cluster.clock.now_ns() - started_ns) / 1_000_000)
    };
    let deadline_ms = u64::from(Cluster::options().deadline_ms);
    let (first, first_ms) = ask();
    assert_eq!(first.unwrap_err().code, Code::Timeout);
    assert!(first_ms >= deadline_ms, "{first_ms} ms");
    for _ in 0..3 {
        let (later, later_ms) = ask();
        assert_eq!(later.unwrap_err().code, Code::Timeout);
        assert!(later_ms <= 1_000, "{later_ms} ms");
    }
    cluster.transport.set_fates(None);
    assert!(ask().0.is_ok());
    cluster.transport.set_fates(Some(Box::new(|_, _| Fate::LoseRequest)));
    assert!(ask().1 >= deadline_ms, "a service that answered is trusted again");
}

/// A reader waited for a data server that had been killed, and `vazao top` called its mount idle: attempts were short
/// and few, and the pauses between them were nobody's waiting.
#[test]
fn pauses_between_attempts_at_a_dead_server_are_waiting_for_it() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "f");
    file.write_at(&pattern(1, 3 * UNIT as usize), 0).unwrap();
    file.close().unwrap();
    let inode = client.lookup(ROOT, b"f").unwrap().inode;
    let file =
        client.open_file(inode, crate::OpenMode { read: true, write: false, truncate: false }).unwrap();
    let before = client.measures();
    cluster.transport.stop("data:1");
    file.read_at(&mut [0; 1000], 0).expect_err("nobody serves it");
    let change = client.measures().since(&before);
    let waited = change.share(change.of.waits.busy_ns);
    assert!(waited > 0.9, "waited for {waited} of {} s", change.seconds);
    let scene = vazao_meter::bottleneck::Scene { observer: &change, servers: &[], beside: &[] };
    let verdict = vazao_meter::bottleneck::judge(scene);
    assert_eq!(verdict.resource, vazao_meter::bottleneck::Resource::NoAnswer, "{verdict:?}");
}
