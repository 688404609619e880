//! What every engine has to do, run over each of them.

use super::{Background, Commit, Engine, EngineOptions, Pair, Transaction, open};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_disk::MemoryDisk;
use vazao_meter::{Accounts, ManualClock};

fn options(background: Background, overlay_bytes_max: usize) -> EngineOptions {
    EngineOptions {
        disk: Arc::new(MemoryDisk::new(3)),
        clock: Arc::new(ManualClock::default()),
        background,
        overlay_bytes_max,
        cache_bytes: 1 << 20,
        initial: Default::default(),
        essential: Vec::new(),
        identity: 0x1234_5678_9ABC_DEF0,
        accounts: Arc::new(Accounts::new()),
    }
}

/// Every engine, the embedded one in several sizes: all in the overlay, all layers, with threads.
fn engines() -> Vec<(&'static str, Arc<dyn Engine>)> {
    let embedded = |background, overlay| open("embedded", options(background, overlay)).unwrap();
    vec![
        ("memory", open("memory", options(Background::Manual, 0)).unwrap()),
        ("embedded, overlay only", embedded(Background::Manual, 1 << 20)),
        ("embedded, small overlay", embedded(Background::Manual, 700)),
        ("embedded, with threads", embedded(Background::Threads, 700)),
    ]
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) -> Commit {
    let mut transaction = engine.begin();
    transaction.put(key.to_vec(), value.to_vec());
    transaction.commit().unwrap()
}

#[test]
fn an_unknown_engine_is_refused_by_name() {
    let error = open("etcd", options(Background::Manual, 0)).err().unwrap();
    assert!(error.to_string().contains("etcd"));
}

#[test]
fn a_transaction_sees_its_own_writes_and_others_see_them_after_the_commit() {
    for (name, engine) in engines() {
        let mut writer = engine.begin();
        writer.put(b"a".to_vec(), b"1".to_vec());
        writer.put(b"b".to_vec(), b"2".to_vec());
        writer.delete(b"a".to_vec());
        assert_eq!(writer.get(b"a").unwrap(), None, "{name}");
        assert_eq!(writer.scan(b"a", b"z", 9).unwrap(), vec![(b"b".to_vec(), b"2".to_vec())], "{name}");
        assert_eq!(engine.begin().get(b"b").unwrap(), None, "{name}");
        assert!(matches!(writer.commit().unwrap(), Commit::Done(_)), "{name}");
        assert_eq!(engine.begin().get(b"b").unwrap(), Some(b"2".to_vec()), "{name}");
    }
}

#[test]
fn a_read_that_has_become_wrong_is_a_conflict() {
    for (name, engine) in engines() {
        put(&*engine, b"k", b"1");
        let mut late = engine.begin();
        late.get(b"k").unwrap();
        late.put(b"other".to_vec(), b"x".to_vec());
        put(&*engine, b"k", b"2");
        assert_eq!(late.commit().unwrap(), Commit::Conflict, "{name}");
        assert_eq!(engine.begin().get(b"other").unwrap(), None, "{name}");
    }
}

#[test]
fn a_key_that_was_absent_when_read_conflicts_with_its_creation() {
    for (name, engine) in engines() {
        let (mut by_key, mut by_range) = (engine.begin(), engine.begin());
        by_key.get(b"new").unwrap();
        by_range.scan(b"a", b"z", 10).unwrap();
        put(&*engine, b"new", b"1");
        assert_eq!(by_key.commit().unwrap(), Commit::Conflict, "{name}");
        assert_eq!(by_range.commit().unwrap(), Commit::Conflict, "{name}");
    }
}

#[test]
fn keys_that_are_read_in_one_pass_are_those_that_were_asked_for_and_conflict_as_one_by_one() {
    for (name, engine) in engines() {
        for number in 0..40_u8 {
            put(&*engine, &[b'k', number], &[number; 30]);
        }
        let mut deletes = engine.begin();
        deletes.delete(vec![b'k', 30]);
        deletes.commit().unwrap();
        let keys = [1, 2, 3, 30, 31, 39, 77].map(|number| vec![b'k', number]);
        for (changed, outcome) in [(4, false), (30, true), (39, true), (77, true)] {
            let (mut reader, mut seen) = (engine.begin(), Vec::new());
            reader.visit_keys(&keys, &mut |index, value| seen.push((index, value.to_vec()))).unwrap();
            let wanted = [(0, 1), (1, 2), (2, 3), (4, 31), (5, 39)];
            assert_eq!(seen, wanted.map(|(index, number)| (index, vec![number; 30])), "{name}");
            let mut other = engine.begin();
            other.delete(vec![b'k', changed]);
            other.commit().unwrap();
            // A checkpoint meanwhile counts as a conflict, too.
            let conflict = reader.commit().unwrap() == Commit::Conflict;
            assert!(conflict || !outcome, "{name}: {changed}");
            put(&*engine, &[b'k', 39], &[39; 30]);
            deletes = engine.begin();
            deletes.delete(vec![b'k', 77]);
            deletes.commit().unwrap();
        }
    }
}

#[test]
fn a_limited_scan_conflicts_only_with_what_it_saw() {
    for (name, engine) in engines() {
        for key in [b"a", b"c", b"e"] {
            put(&*engine, key, b"1");
        }
        let mut page = engine.begin();
        assert_eq!(page.scan(b"a", b"z", 2).unwrap().len(), 2, "{name}");
        put(&*engine, b"d", b"1");
        assert!(matches!(page.commit().unwrap(), Commit::Done(_)), "{name}");
        let mut page = engine.begin();
        page.scan(b"a", b"z", 2).unwrap();
        put(&*engine, b"b", b"1");
        assert_eq!(page.commit().unwrap(), Commit::Conflict, "{name}");
    }
}

#[test]
fn blind_puts_of_one_key_do_not_conflict() {
    for (name, engine) in engines() {
        let mut first = engine.begin();
        let mut second = engine.begin();
        first.put(b"times".to_vec(), b"1".to_vec());
        second.put(b"times".to_vec(), b"2".to_vec());
        assert!(matches!(first.commit().unwrap(), Commit::Done(_)), "{name}");
        assert!(matches!(second.commit().unwrap(), Commit::Done(_)), "{name}");
        assert_eq!(engine.begin().get(b"times").unwrap(), Some(b"2".to_vec()), "{name}");
    }
}

#[test]
fn discarded_writes_leave_the_reads_to_be_checked() {
    for (name, engine) in engines() {
        let mut transaction = engine.begin();
        transaction.get(b"k").unwrap();
        transaction.put(b"w".to_vec(), b"1".to_vec());
        transaction.discard_writes();
        put(&*engine, b"k", b"2");
        assert_eq!(transaction.commit().unwrap(), Commit::Conflict, "{name}");
        assert_eq!(engine.begin().get(b"w").unwrap(), None, "{name}");
    }
}

#[test]
fn transactions_over_the_limits_are_refused() {
    for (name, engine) in engines() {
        let mut transaction = engine.begin();
        transaction.put(b"k".to_vec(), vec![0; super::VALUE_BYTES_MAX + 1]);
        assert!(transaction.commit().is_err(), "{name}");
        let mut transaction = engine.begin();
        for n in 0..11u8 {
            transaction.put(vec![n], vec![0; super::VALUE_BYTES_MAX]);
        }
        assert!(transaction.commit().is_err(), "{name}");
        assert_eq!(engine.figures().position, 0, "{name}");
    }
}

#[test]
fn a_notice_comes_once_the_position_is_durable() {
    for (name, engine) in engines() {
        let Commit::Done(position) = put(&*engine, b"k", b"1") else { panic!("{name}: conflict") };
        let (sender, receiver) = std::sync::mpsc::channel();
        engine.when_durable(position, Box::new(move |durable| sender.send(durable.is_ok()).unwrap()));
        engine.flush().unwrap();
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(20)), Ok(true), "{name}");
        assert!(engine.figures().durable >= position, "{name}");
    }
}

#[test]
fn counters_grow_by_one_for_each_of_many_threads_commits() {
    const THREADS: u64 = 4;
    const EACH: u64 = 200;
    for (name, engine) in engines() {
        let conflicts = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        while add_one(&*engine) == Commit::Conflict {
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                        engine.flush().unwrap();
                    }
                });
            }
        });
        let value = engine.begin().get(b"n").unwrap().unwrap();
        assert_eq!(u64::from_be_bytes(value.try_into().unwrap()), THREADS * EACH, "{name}");
        engine.close().unwrap();
    }
}

fn add_one(engine: &dyn Engine) -> Commit {
    let mut transaction = engine.begin();
    let present = transaction.get(b"n").unwrap().map_or(0, |v| u64::from_be_bytes(v.try_into().unwrap()));
    transaction.put(b"n".to_vec(), (present + 1).to_be_bytes().to_vec());
    transaction.commit().unwrap()
}

/// A step of one of three transactions that run at the same time.
#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Scan(u8, u8, usize),
    Put(u8, u16),
    Delete(u8),
    Commit,
    Flush,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let key = 0u8..16;
    let step = prop_oneof![
        3 => key.clone().prop_map(Step::Get),
        2 => (key.clone(), key.clone(), 1usize..6).prop_map(|(a, b, limit)| Step::Scan(a, b, limit)),
        4 => (key.clone(), any::<u16>()).prop_map(|(k, v)| Step::Put(k, v)),
        2 => key.prop_map(Step::Delete),
        3 => Just(Step::Commit),
        1 => Just(Step::Flush),
    ];
    (0usize..3, step)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a transaction did, to be done again over the model.
#[derive(Clone)]
enum Done {
    Got(Vec<u8>, Option<Vec<u8>>),
    Scanned(Vec<u8>, Vec<u8>, usize, Vec<Pair>),
    Put(Vec<u8>, Vec<u8>),
    Deleted(Vec<u8>),
}

/// A committed transaction must have seen what it would see if it ran alone at the moment of its commit.
fn replay(model: &mut Model, name: &str, done: &[Done]) {
    for step in done {
        match step {
            Done::Got(key, value) => assert_eq!(model.get(key), value.as_ref(), "{name}"),
            Done::Scanned(start, end, limit, pairs) => {
                let expected: Vec<Pair> = if start < end {
                    let range = model.range(start.clone()..end.clone());
                    range.take(*limit).map(|(k, v)| (k.clone(), v.clone())).collect()
                } else {
                    Vec::new()
                };
                assert_eq!(&expected, pairs, "{name}");
            }
            Done::Put(key, value) => {
                model.insert(key.clone(), value.clone());
            }
            Done::Deleted(key) => {
                model.remove(key);
            }
        }
    }
}

struct Open<'a> {
    transaction: Box<dyn Transaction + 'a>,
    done: Vec<Done>,
    began_at: u64,
}

fn run_steps(name: &str, engine: &dyn Engine, steps: &[(usize, Step)]) {
    let mut model = Model::new();
    let mut open: [Option<Open<'_>>; 3] = [None, None, None];
    for (slot, step) in steps {
        let entry = open[*slot].get_or_insert_with(|| Open {
            began_at: engine.figures().position,
            transaction: engine.begin(),
            done: Vec::new(),
        });
        let transaction = &mut entry.transaction;
        match step.clone() {
            Step::Get(key) => entry.done.push(Done::Got(vec![key], transaction.get(&[key]).unwrap())),
            Step::Scan(start, end, limit) => {
                let pairs = transaction.scan(&[start], &[end], limit).unwrap();
                entry.done.push(Done::Scanned(vec![start], vec![end], limit, pairs));
            }
            Step::Put(key, value) => {
                let value = value.to_be_bytes().to_vec();
                transaction.put(vec![key], value.clone());
                entry.done.push(Done::Put(vec![key], value));
            }
            Step::Delete(key) => {
                transaction.delete(vec![key]);
                entry.done.push(Done::Deleted(vec![key]));
            }
            Step::Flush => engine.flush().unwrap(),
            Step::Commit => {
                let ended = open[*slot].take().expect("just made");
                match ended.transaction.commit().unwrap() {
                    Commit::Done(_) => replay(&mut model, name, &ended.done),
                    Commit::Conflict => {
                        assert!(
                            engine.figures().position > ended.began_at,
                            "{name}: a conflict without another transaction"
                        );
                    }
                }
            }
        }
    }
    let all = engine.begin().scan(&[], &[255], 1000).unwrap();
    assert_eq!(all, model.into_iter().collect::<Vec<_>>(), "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn committed_transactions_are_as_if_run_one_after_the_other(steps in prop::collection::vec(step(), 1..120)) {
        for (name, engine) in engines() {
            run_steps(name, &*engine, &steps);
        }
    }
}
