//! What every place has to do; a local directory here, the library in `tests/`.

use super::*;
use tempfile::tempdir;

fn local() -> (tempfile::TempDir, Local) {
    let directory = tempdir().unwrap();
    let place = Local::new(directory.path().to_str().unwrap(), "work").unwrap();
    (directory, place)
}

#[test]
fn what_was_written_is_read_at_its_offsets() {
    let (_directory, place) = local();
    let file = place.create("a").unwrap();
    file.write_at(b"world", 5).unwrap();
    file.write_at(b"hello", 0).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    let mut buffer = [0; 6];
    let file = place.open("a").unwrap();
    read_full(file.as_ref(), &mut buffer, 4).unwrap();
    assert_eq!(&buffer, b"oworld");
    let end = read_full(file.as_ref(), &mut buffer, 8).unwrap_err();
    assert_eq!(
        (end.kind(), end.to_string().as_str()),
        (io::ErrorKind::UnexpectedEof, "file ends at byte 10")
    );
}

#[test]
fn creating_a_file_again_empties_it() {
    let (_directory, place) = local();
    place.create("a").unwrap().write_at(b"hello", 0).unwrap();
    place.create("a").unwrap().close().unwrap();
    assert_eq!(place.open("a").unwrap().read_at(&mut [0; 8], 0).unwrap(), 0);
}

#[test]
fn finishing_leaves_the_directory_as_it_was() {
    let (directory, place) = local();
    place.create("a").unwrap().close().unwrap();
    assert!(place.finish().is_err(), "a file is left");
    place.remove("a").unwrap();
    place.settle().unwrap();
    place.finish().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn when_one_place_cannot_be_opened_the_others_are_closed_again() {
    let directory = tempdir().unwrap();
    let good = directory.path().display().to_string();
    let connect = || Err("no cluster: set VAZAO_CLUSTER".to_owned());
    let clock = vazao_meter::clock::system();
    let mut output = Vec::new();
    let context = Context { clock, connect: &connect, stop: Default::default(), output: &mut output };
    for (bad, expected) in [("/no/such/directory", "/no/such/directory"), ("vz:/a", "VAZAO_CLUSTER")] {
        let error = open_all(&[good.clone(), bad.to_owned()], "work", &context).err().expect("must fail");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn clearing_removes_files_and_trees_that_a_measurement_left() {
    let (directory, place) = local();
    place.create("a").unwrap().close().unwrap();
    std::fs::create_dir_all(directory.path().join("work/b/c")).unwrap();
    place.clear().unwrap();
    place.finish().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn once_asked_to_stop_a_place_does_nothing_but_remove() {
    let (directory, place) = local();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let place = Interruptible::new(Box::new(place), Stop::new(std::sync::Arc::clone(&asked)));
    let file = place.create("a").unwrap();
    file.write_at(b"a", 0).unwrap();
    asked.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(file.write_at(b"a", 1).is_err() && file.read_at(&mut [0], 0).is_err());
    assert!(place.create("b").is_err() && place.open("a").is_err());
    file.close().unwrap();
    let error = abandon(&[Box::new(place)], Error::Failed("interrupted".to_owned()));
    assert_eq!(error.to_string(), "interrupted");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
