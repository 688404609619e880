//! The files of a job in the daemon's own directory: what it is, what it will copy, what became of each file.
//!
//! `job` is replaced as a whole, `plan` and `outcomes` grow by records of length, CRC-32C and message, and are read up
//! to where they make sense (docs/on-disk.md).

use prost::Message;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vazao_model::checksum::crc32c;
use vazao_wire::proto;

/// A record is two paths or an error.
const RECORD_BYTES_MAX: usize = 256 * 1024;

/// The directory of one job.
#[derive(Clone, Debug)]
pub(super) struct JobFiles {
    directory: PathBuf,
}

fn framed(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    [&(body.len() as u32).to_le_bytes()[..], &crc32c(&body).to_le_bytes(), &body].concat()
}

/// Reads one record; `None` at the end and where it makes no sense.
fn read_record<M: Message + Default>(reader: &mut impl Read) -> Option<M> {
    let (mut length, mut sum) = ([0; 4], [0; 4]);
    reader.read_exact(&mut length).ok()?;
    reader.read_exact(&mut sum).ok()?;
    let length = u32::from_le_bytes(length) as usize;
    if length > RECORD_BYTES_MAX {
        return None;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    (crc32c(&body) == u32::from_le_bytes(sum)).then(|| M::decode(body.as_slice()).ok())?
}

impl JobFiles {
    pub(super) fn new(directory: PathBuf) -> JobFiles {
        JobFiles { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes the job down; durable when this returns.
    pub(super) fn save(&self, record: &proto::JobRecord) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let new = self.path("job.new");
        let mut file = File::create(&new)?;
        file.write_all(&framed(record))?;
        file.sync_all()?;
        fs::rename(&new, self.path("job"))?;
        File::open(&self.directory)?.sync_all()
    }

    /// The job as it was written down.
    pub(super) fn load(&self) -> Option<proto::JobRecord> {
        read_record(&mut File::open(self.path("job")).ok()?)
    }

    /// Begins a plan in the place of any that was there.
    pub(super) fn begin_plan(&self) -> io::Result<PlanWriter> {
        let _ = fs::remove_file(self.path("outcomes"));
        Ok(PlanWriter { writer: BufWriter::new(File::create(self.path("plan"))?) })
    }

    /// The plan from its beginning.
    pub(super) fn plan(&self) -> io::Result<PlanReader> {
        Ok(PlanReader { reader: BufReader::new(File::open(self.path("plan"))?), index: 0 })
    }

    /// Calls `each` with all outcomes so far, while others may be written.
    pub(super) fn read_outcomes(&self, each: impl FnMut(proto::FileOutcome)) -> io::Result<()> {
        match File::open(self.path("outcomes")) {
            Ok(file) => {
                let mut reader = BufReader::new(file);
                std::iter::from_fn(|| read_record(&mut reader)).for_each(each);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Calls `each` with all outcomes so far, and returns where further ones are written.
    pub(super) fn outcomes(&self, mut each: impl FnMut(proto::FileOutcome)) -> io::Result<OutcomeWriter> {
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(self.path("outcomes"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut rest = bytes.as_slice();
        let mut whole = 0;
        while let Some(outcome) = read_record::<proto::FileOutcome>(&mut rest) {
            whole = bytes.len() - rest.len();
            each(outcome);
        }
        // A torn record would hide all that are written behind it.
        file.set_len(whole as u64)?;
        Ok(OutcomeWriter { file: OpenOptions::new().append(true).open(self.path("outcomes"))? })
    }

    /// Removes all of it.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.directory)
    }

    /// The directories of all jobs below `directory`, with their numbers.
    pub(super) fn all(directory: &Path) -> io::Result<Vec<(u64, JobFiles)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                found.push((number, JobFiles::new(entry.path())));
            }
        }
        found.sort_unstable_by_key(|&(number, _)| number);
        Ok(found)
    }
}

/// Writes a plan.
pub(super) struct PlanWriter {
    writer: BufWriter<File>,
}

impl PlanWriter {
    pub(super) fn add(&mut self, entry: &proto::PlanEntry) -> io::Result<()> {
        self.writer.write_all(&framed(entry))
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

/// Reads a plan, entry by entry.
#[derive(Debug)]
pub(super) struct PlanReader {
    reader: BufReader<File>,
    index: u64,
}

impl Iterator for PlanReader {
    type Item = (u64, proto::PlanEntry);

    fn next(&mut self) -> Option<(u64, proto::PlanEntry)> {
        let entry = read_record(&mut self.reader)?;
        self.index += 1;
        Some((self.index - 1, entry))
    }
}

/// Writes outcomes. They outlive the process at once and a loss of power by chance: then a file is looked at again.
#[derive(Debug)]
pub(super) struct OutcomeWriter {
    file: File,
}

impl OutcomeWriter {
    /// An error also when the file has no name any more: the job's directory was removed, and after a restart all that
    /// is written would never have been.
    pub(super) fn add(&mut self, outcome: &proto::FileOutcome) -> io::Result<()> {
        self.file.write_all(&framed(outcome))?;
        match self.file.metadata()?.nlink() {
            0 => Err(io::Error::new(io::ErrorKind::NotFound, "its file was removed while it was in use")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_back_and_a_torn_outcome_is_cut_off() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let files = JobFiles::new(directory.path().join("7"));
        files.save(&proto::JobRecord { number: 7, ..Default::default() }).expect("saved");
        assert_eq!(files.load().map(|record| record.number), Some(7));
        let mut plan = files.begin_plan().expect("begun");
        for size in 0..3 {
            plan.add(&proto::PlanEntry { size, ..Default::default() }).expect("written");
        }
        plan.finish().expect("written");
        let sizes: Vec<(u64, u64)> = files.plan().expect("there").map(|(i, e)| (i, e.size)).collect();
        assert_eq!(sizes, [(0, 0), (1, 1), (2, 2)]);
        let outcome = |index| proto::FileOutcome { index, outcome: 1, detail: String::new() };
        let mut writer = files.outcomes(|_| panic!("none yet")).expect("opened");
        writer.add(&outcome(2)).expect("written");
        writer.file.write_all(&[9, 0, 0]).expect("torn");
        let mut seen = Vec::new();
        let mut writer = files.outcomes(|o| seen.push(o.index)).expect("opened");
        writer.add(&outcome(0)).expect("written");
        files.outcomes(|o| seen.push(o.index)).expect("opened");
        assert_eq!(seen, [2, 2, 0]);
        assert_eq!(JobFiles::all(directory.path()).expect("listed").len(), 1);
    }

    /// Regression: a job whose directory was removed went on recording outcomes that could never be read.
    #[test]
    fn outcomes_without_a_place_are_errors() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let files = JobFiles::new(directory.path().join("7"));
        files.save(&proto::JobRecord { number: 7, ..Default::default() }).expect("saved");
        let mut writer = files.outcomes(|_| panic!("none yet")).expect("opened");
        writer.add(&proto::FileOutcome::default()).expect("written");
        files.remove().expect("removed");
        assert!(writer.add(&proto::FileOutcome::default()).is_err());
    }

    /// Who asked for the failures of a running job took the outcome away that was being written.
    #[test]
    fn an_outcome_that_is_being_written_while_others_are_read_is_not_lost() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let files = JobFiles::new(directory.path().to_owned());
        let mut read = 0;
        files.read_outcomes(|_| read += 1).expect("none yet");
        let mut writer = files.outcomes(|_| panic!("none yet")).expect("opened");
        let outcome = |index| proto::FileOutcome { index, outcome: 3, detail: "lost".into() };
        writer.add(&outcome(0)).expect("written");
        let record = framed(&outcome(1));
        let (begun, rest) = record.split_at(9);
        writer.file.write_all(begun).expect("written");
        files.read_outcomes(|_| read += 1).expect("read");
        writer.file.write_all(rest).expect("written");
        files.read_outcomes(|_| read += 1).expect("read");
        assert_eq!(read, 3);
    }
}
