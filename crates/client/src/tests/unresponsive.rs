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
