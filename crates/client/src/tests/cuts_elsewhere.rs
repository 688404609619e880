//! A client writes while another one cuts the file to nothing.

use super::{Cluster, create, pattern, read_all};
use crate::{File, OpenMode, Result};
use vazao_model::Code;
use vazao_model::ids::ROOT;
use vazao_wire::Method;
use vazao_wire::inline::Fate;

const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };
const CUT: OpenMode = OpenMode { read: true, write: true, truncate: true };

/// Contents of a file that lies in objects.
const STRIPED: usize = 100_000;

/// A file with contents that are reported, open in a client.
fn contested(cluster: &Cluster) -> File {
    let file = create(&cluster.client(), "contested");
    file.write_at(&pattern(8, STRIPED), 0).unwrap();
    file.flush().unwrap();
    file
}

fn cut(cluster: &Cluster, file: &File) {
    cluster.client().open_file(file.inode(), CUT).unwrap();
    // The reclaimer is quick.
    cluster.lose_objects();
}

fn contents(cluster: &Cluster, file: &File) -> Vec<u8> {
    read_all(&cluster.client().open_file(file.inode(), READ).unwrap())
}

/// `writes` one after the other.
fn written(writes: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (offset, part) in writes {
        let end = *offset as usize + part.len();
        bytes.resize(end.max(bytes.len()), 0);
        bytes[*offset as usize..end].copy_from_slice(part);
    }
    bytes
}

/// The next fsync or close of the writer was ESTALE, and what it had written after the cut was gone. On a local file
/// system it is there.
#[test]
fn what_was_written_and_not_reported_is_in_the_file_after_another_client_has_cut_it() {
    type Store = fn(File) -> Result<()>;
    let stores: [Store; 3] = [|file| file.flush(), |file| file.sync(), File::close];
    for store in stores {
        for (before, after) in [(0, 1), (1, 0), (1, 1), (3, 5)] {
            for length in [10, 5_000, 30_000] {
                let cluster = Cluster::new(3);
                let file = contested(&cluster);
                let writes: Vec<(u64, Vec<u8>)> = (0..before + after)
                    .map(|number| (number * 17_000 % 90_000, pattern(number, length)))
                    .collect();
                let (early, late) = writes.split_at(before as usize);
                early.iter().for_each(|(offset, bytes)| file.write_at(bytes, *offset).unwrap());
                cut(&cluster, &file);
                late.iter().for_each(|(offset, bytes)| file.write_at(bytes, *offset).unwrap());
                let inode = file.inode();
                store(file).unwrap();
                let again = cluster.client().open_file(inode, READ).unwrap();
                assert!(read_all(&again) == written(&writes), "{before}, {after} writes of {length} bytes");
            }
        }
    }
}

#[test]
fn a_write_that_finds_its_object_gone_goes_to_the_new_file() {
    let cluster = Cluster::new(2);
    let file = contested(&cluster);
    cut(&cluster, &file);
    file.write_list(&[(5, b"list"), (70_000, b"of two")]).unwrap();
    let mut unit = pattern(3, 65_536);
    file.write_at(&unit, 0).unwrap();
    file.sync().unwrap();
    unit.resize(70_000, 0);
    unit.extend(b"of two");
    assert!(contents(&cluster, &file) == unit);
    assert!(read_all(&file) == unit, "the writer reads what it has written");
}

#[test]
fn a_new_file_that_has_just_got_objects_is_written_again_with_what_it_had_before() {
    let cluster = Cluster::new(2);
    let file = create(&cluster.client(), "new");
    let bytes = pattern(5, 60_000);
    file.write_at(&bytes[..9_000], 0).unwrap();
    file.write_at(&bytes[9_000..], 9_000).unwrap();
    cut(&cluster, &file);
    file.sync().unwrap();
    assert!(contents(&cluster, &file) == bytes);
}

#[test]
fn what_was_reported_before_the_cut_stays_cut_off() {
    let cluster = Cluster::new(2);
    let file = contested(&cluster);
    file.write_at(b"reported", 10).unwrap();
    file.flush().unwrap();
    file.write_at(b"after it", 30).unwrap();
    cut(&cluster, &file);
    file.sync().unwrap();
    assert_eq!(contents(&cluster, &file), written(&[(30, b"after it".to_vec())]));
    cut(&cluster, &file);
    file.sync().unwrap();
    assert_eq!(contents(&cluster, &file), b"");
}

/// Copies cost memory: of a stream there are none.
#[test]
fn the_writer_of_more_than_is_kept_is_told_once_and_goes_on_in_the_new_file() {
    let cluster = Cluster::new(2);
    let file = contested(&cluster);
    file.write_at(&pattern(4, 1 << 20), 0).unwrap();
    cut(&cluster, &file);
    file.write_at(b"into the old life", 0).unwrap();
    assert_eq!(file.flush().unwrap_err().code, Code::Stale);
    file.write_at(b"into the new life", 0).unwrap();
    file.flush().unwrap();
    assert_eq!(contents(&cluster, &file), b"into the new life");
}

#[test]
fn the_writer_who_has_made_holes_or_copied_on_a_server_is_told() {
    let cluster = Cluster::new(2);
    let change: [fn(&File, &File) -> Result<()>; 2] =
        [|file, _| file.zero(1_000..80_000), |file, source| file.copy_from(source, 0, 0, 65_536).map(|_| ())];
    for change in change {
        let file = contested(&cluster);
        let source = create(&cluster.client(), "source");
        source.write_at(&pattern(9, STRIPED), 0).unwrap();
        source.flush().unwrap();
        change(&file, &source).unwrap();
        cluster.client().open_file(file.inode(), CUT).unwrap();
        file.write_at(b"later", 0).unwrap();
        assert_eq!(file.flush().unwrap_err().code, Code::Stale);
        for name in ["contested", "source"] {
            cluster.client().unlink(ROOT, name.as_bytes()).unwrap();
        }
    }
}

/// What the service does not say is left as it is: the next flush asks again.
#[test]
fn nothing_is_lost_while_the_metadata_service_does_not_show_the_new_file() {
    let cluster = Cluster::new(2);
    let file = contested(&cluster);
    cut(&cluster, &file);
    file.write_at(b"kept", 3).unwrap();
    let lost = |_: &str, method| if method == Method::Open { Fate::LoseRequest } else { Fate::Deliver };
    cluster.transport.set_fates(Some(Box::new(lost)));
    assert_eq!(file.flush().unwrap_err().code, Code::Timeout);
    cluster.transport.set_fates(None);
    file.flush().unwrap();
    assert_eq!(contents(&cluster, &file), b"\0\0\0kept");
}
