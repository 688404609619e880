//! What a client has shown its callers of a file, and has not looked at yet. A mount's kernel fills what a short answer
//! leaves out with zeros.

use super::{Cluster, create, pattern, read_all};
use crate::{Changes, Client, File, OpenMode, Options};
use parking_lot::Mutex;
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::inline::Fate;
use vazao_wire::transport::{Pending, Transport};

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// In the inode record, and in objects.
const LENGTHS: [usize; 2] = [3_000, 100_000];

/// A file of `length` bytes that the first client has open, and that another one has made twice as long since.
fn grown(cluster: &Cluster, length: usize) -> (Client, File, Vec<u8>) {
    let (one, two, bytes) = (cluster.client(), cluster.client(), pattern(5, 2 * length));
    let first = create(&one, "f");
    first.write_at(&bytes[..length], 0).unwrap();
    first.flush().unwrap();
    let second = two.open_file(first.inode(), BOTH).unwrap();
    second.write_at(&bytes[length..], length as u64).unwrap();
    second.close().unwrap();
    (one, first, bytes)
}

/// The metadata service does not answer when it is asked for contents, for so long.
fn lose_opens(cluster: &Cluster, for_ns: u64) {
    let (clock, until_ns) = (Arc::clone(&cluster.clock), cluster.clock.now_ns().saturating_add(for_ns));
    cluster.transport.set_fates(Some(Box::new(move |_, method| {
        let is_lost = method == Method::Open && clock.now_ns() < until_ns;
        if is_lost { Fate::LoseRequest } else { Fate::Deliver }
    })));
}

/// A mount that had a file open knew its length from before another client had made it longer. Its kernel was shown the
/// new length, by a stat, and asked for bytes up to there. The metadata service was slow for more than a second, the
/// mount answered what it knew, and the program read zeros.
#[test]
fn a_read_within_the_length_that_was_shown_waits_for_what_is_there() {
    for length in LENGTHS {
        let cluster = Cluster::new(2);
        let (one, file, bytes) = grown(&cluster, length);
        assert_eq!(one.attributes(file.inode()).unwrap().size, 2 * length as u64);
        lose_opens(&cluster, 5_000_000_000);
        let mut found = vec![0; 2 * length];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), 2 * length, "{length}");
        assert!(found == bytes, "{length}");
    }
}

#[test]
fn a_read_within_the_length_that_was_shown_fails_where_it_cannot_be_known() {
    for length in LENGTHS {
        let cluster = Cluster::new(2);
        let (one, file, bytes) = grown(&cluster, length);
        assert_eq!(one.attributes(file.inode()).unwrap().size, 2 * length as u64);
        lose_opens(&cluster, u64::MAX);
        let error = file.read_at(&mut vec![0; 2 * length], 0).unwrap_err();
        assert_eq!(error.code, Code::Timeout, "{length}: {error}");
        let mut parts = vec![0; length];
        let list = file.read_list(&mut [(0, &mut [0; 10]), (length as u64, &mut parts)]);
        assert_eq!(list.unwrap_err().code, Code::Timeout, "{length}");
        // What lies before may be what it was.
        assert_eq!(file.read_at(&mut vec![0; length], 0).unwrap(), length);
        cluster.transport.set_fates(None);
        assert!(read_all(&file) == bytes, "{length}");
    }
}

/// The answer to a chmod has the length, and not the contents of a small file: what another client had appended read as
/// zeros.
#[test]
fn an_answer_without_contents_does_not_make_zeros_of_what_another_client_wrote() {
    for length in LENGTHS {
        let cluster = Cluster::new(2);
        let (one, file, bytes) = grown(&cluster, length);
        let changes = Changes { mode: Some(0o600), ..Changes::default() };
        assert_eq!(one.set_attributes(file.inode(), &changes).unwrap().size, 2 * length as u64);
        assert!(read_all(&file) == bytes, "{length}");
    }
}

/// Runs something right after a request of a method was carried out, before its answer arrives.
struct After {
    inner: Arc<dyn Transport>,
    method: Method,
    work: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Transport for After {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let pending = self.inner.submit(address, method, message, attachment, deadline_ns);
        let work = if method == self.method { self.work.lock().take() } else { None };
        work.into_iter().for_each(|work| work());
        pending
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

/// A client set a length, another one wrote behind it, and the first one looked at the file before the answer to its
/// own request was there: it took the file to end where it had set the end.
#[test]
fn the_answer_to_a_length_that_was_set_does_not_take_back_a_newer_one() {
    for (set, end) in [(50_000, 80_000), (1_000, 5_000)] {
        let cluster = Cluster::new(2);
        let inner = Arc::clone(&cluster.transport) as Arc<dyn Transport>;
        let after = Arc::new(After { inner, method: Method::SetAttributes, work: Mutex::default() });
        let options = Options { name: "first".into(), ..Cluster::options() };
        let one = Client::open(Arc::clone(&after) as _, vec![super::META.to_owned()], options).unwrap();
        let bytes = pattern(5, end.max(2 * set));
        let file = Arc::new(create(&one, "f"));
        file.write_at(&bytes[..2 * set], 0).unwrap();
        file.flush().unwrap();
        let (inode, two, mine, tail) =
            (file.inode(), cluster.client(), Arc::clone(&file), bytes[..end].to_vec());
        let reader = Arc::new(one);
        let looking = Arc::clone(&reader);
        *after.work.lock() = Some(Box::new(move || {
            let other = two.open_file(inode, BOTH).unwrap();
            other.write_at(&tail[set..], set as u64).unwrap();
            other.close().unwrap();
            assert_eq!(looking.attributes(inode).unwrap().size, end as u64);
            assert_eq!(mine.read_at(&mut vec![0; end], 0).unwrap(), end);
        }));
        file.set_length(set as u64).unwrap();
        assert!(after.work.lock().is_none(), "the other client has written");
        let mut found = vec![0; end];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), end);
        assert!(found == bytes[..end], "{set}");
    }
}
