//! Small files that grow beyond their inode record while a data server is silent.

use super::*;
use crate::OpenMode;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::inline::Fate;

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

impl Cluster {
    /// No data server answers, until [`Cluster::hear`].
    fn silence(&self) {
        self.transport.set_fates(Some(Box::new(|address, _| match address.starts_with("data:") {
            true => Fate::LoseRequest,
            false => Fate::Deliver,
        })));
    }

    fn hear(&self) {
        self.transport.set_fates(None);
    }

    fn contents(&self, name: &str) -> Vec<u8> {
        let client = self.client();
        let inode = client.lookup(ROOT, name.as_bytes()).unwrap().inode;
        read_all(&client.open_file(inode, BOTH).unwrap())
    }
}

fn assert_silent(error: &crate::Error) {
    assert_eq!(error.code, Code::Timeout, "{error}");
    assert!(error.to_string().contains("n1 (data:1)"), "{error}");
}

/// What had been written of the small file, and not reported, was lost: the next fsync or close said ESTALE.
#[test]
fn a_file_that_cannot_outgrow_its_record_keeps_what_was_written_until_the_server_is_back() {
    for reported in [0, 1_000, 9_000] {
        let cluster = Cluster::new(1);
        let client = cluster.client();
        let file = create(&client, "f");
        let bytes = pattern(reported as u64, 60_000);
        file.write_at(&bytes[..reported], 0).unwrap();
        file.flush().unwrap();
        file.write_at(&bytes[reported..10_000], reported as u64).unwrap();
        cluster.silence();
        for _ in 0..2 {
            assert_silent(&file.write_at(&bytes[10_000..], 10_000).unwrap_err());
        }
        // Where the record has no contents it has the layout already, and is left for it.
        if reported == 0 {
            assert_silent(&file.sync().unwrap_err());
            assert_silent(&file.flush().unwrap_err());
        }
        cluster.hear();
        assert!(read_all(&file) == bytes[..10_000]);
        file.sync().unwrap();
        assert!(cluster.contents("f") == bytes[..10_000], "{reported} bytes were reported");
        file.write_at(&bytes[10_000..], 10_000).unwrap();
        file.close().unwrap();
        assert!(cluster.contents("f") == bytes, "{reported} bytes were reported");
    }
}

#[test]
fn a_close_that_could_not_store_a_small_file_fails_and_the_next_handle_stores_it() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "f");
    let (bytes, inode) = (pattern(3, 10_000), file.inode());
    file.write_at(&bytes, 0).unwrap();
    cluster.silence();
    file.write_at(&bytes, 10_000).unwrap_err();
    assert_silent(&file.close().unwrap_err());
    let again = client.open_file(inode, BOTH).unwrap();
    assert_silent(&again.sync().unwrap_err());
    cluster.hear();
    again.sync().unwrap();
    assert!(read_all(&again) == bytes);
    again.close().unwrap();
    assert!(cluster.contents("f") == bytes);
}

/// The same when another client comes first: its layout is the file's, and what neither has written is not touched.
#[test]
fn two_clients_that_cannot_outgrow_one_file_lose_nothing_of_each_other() {
    for reported in [0, 2_000] {
        let cluster = Cluster::new(1);
        let (one, two) = (cluster.client(), cluster.client());
        let first = create(&one, "f");
        let bytes = pattern(11, 60_000);
        first.write_at(&bytes[..reported], 0).unwrap();
        first.flush().unwrap();
        let second = two.open_file(first.inode(), BOTH).unwrap();
        first.write_at(&bytes[reported..8_000], reported as u64).unwrap();
        second.write_at(&bytes[8_000..16_000], 8_000).unwrap();
        cluster.silence();
        assert_silent(&first.write_at(&bytes[16_000..30_000], 16_000).unwrap_err());
        assert_silent(&second.write_at(&bytes[30_000..], 30_000).unwrap_err());
        cluster.hear();
        second.write_at(&bytes[30_000..], 30_000).unwrap();
        second.close().unwrap();
        first.write_at(&bytes[16_000..30_000], 16_000).unwrap();
        first.close().unwrap();
        assert!(cluster.contents("f") == bytes, "{reported} bytes were reported");
    }
}

#[test]
fn a_file_that_could_not_outgrow_its_record_is_written_to_the_contents_that_another_client_began() {
    let cluster = Cluster::new(1);
    let (one, two) = (cluster.client(), cluster.client());
    let first = create(&one, "f");
    first.write_at(&pattern(1, 10_000), 0).unwrap();
    cluster.silence();
    assert_silent(&first.write_at(&pattern(1, 10_000), 10_000).unwrap_err());
    assert_silent(&first.sync().unwrap_err());
    let second = two.open_file(first.inode(), BOTH).unwrap();
    second.set_length(0).unwrap();
    second.write_at(&pattern(2, 12_000), 0).unwrap();
    second.close().unwrap();
    first.sync().unwrap();
    let mut bytes = pattern(2, 12_000);
    bytes[..10_000].copy_from_slice(&pattern(1, 10_000));
    assert!(cluster.contents("f") == bytes, "both wrote it at the same time");
    cluster.hear();
    assert!(read_all(&first) == bytes);
}

/// What a failed close had left came over what another client had written since, because somebody looked at the file.
#[test]
fn what_a_failed_close_left_does_not_come_over_what_another_client_has_written_since() {
    for length in [3_000, 12_000, 40_000] {
        let cluster = Cluster::new(1);
        let (one, two) = (cluster.client(), cluster.client());
        let first = create(&one, "f");
        let inode = first.inode();
        first.write_at(&pattern(1, 10_000), 0).unwrap();
        cluster.silence();
        assert_silent(&first.write_at(&pattern(1, 10_000), 10_000).unwrap_err());
        assert_silent(&first.close().unwrap_err());
        cluster.hear();
        let second = two.open_file(inode, BOTH).unwrap();
        second.set_length(0).unwrap();
        second.write_at(&pattern(2, length), 0).unwrap();
        second.close().unwrap();
        let again = one.open_file(inode, BOTH).unwrap();
        assert!(read_all(&again) == pattern(2, length));
        again.sync().unwrap();
        again.close().unwrap();
        assert!(cluster.contents("f") == pattern(2, length));
    }
}

/// A close that could not report failed, and an fsync through the next handle returned 0: size and bytes were gone.
#[test]
fn what_a_close_could_not_report_is_reported_through_the_next_handle() {
    for (before, length) in [(0, 2_000), (1_000, 9_000), (0, 200_000), (50_000, 200_000)] {
        let cluster = Cluster::new(2);
        let client = cluster.client();
        let file = create(&client, "f");
        let (bytes, inode) = (pattern(9, length), file.inode());
        file.write_at(&bytes[..before], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&bytes[before..], before as u64).unwrap();
        cluster.transport.set_fates(Some(Box::new(|_, method| match method {
            Method::Commit => Fate::LoseRequest,
            _ => Fate::Deliver,
        })));
        assert_eq!(file.close().unwrap_err().code, Code::Timeout);
        let again = client.open_file(inode, BOTH).unwrap();
        assert_eq!(again.sync().unwrap_err().code, Code::Timeout);
        cluster.hear();
        assert!(read_all(&again) == bytes);
        again.sync().unwrap();
        again.close().unwrap();
        assert!(cluster.contents("f") == bytes, "{before} of {length} bytes were there before");
    }
}
