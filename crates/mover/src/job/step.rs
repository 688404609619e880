//! The steps of one file: decide, begin, send, end. Each may wait for other nodes and runs in the pool.

use super::plan::find;
use super::state::Job;
use crate::control::{Control, Counts};
use crate::outgoing::{
    Destination, Manner, Outgoing, Started, Surroundings, WHOLE_BYTES_MAX, begin, send_whole,
};
use crate::place::Place;
use crate::source::{FileSource, Source, VolumeSource, of_client};
use crate::volume::{self, Arrivals, Begun, VolumeCopy};
use std::sync::Arc;
use vazao_area::AreaService;
use vazao_client::area::{AreaChanges, Reference};
use vazao_client::{Client, OpenMode, RenameMode};
use vazao_meter::Clock;
use vazao_model::{Code, FileKind, Timestamp};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// What a daemon needs to copy.
pub(super) struct Means {
    pub(super) node: String,
    pub(super) area: Arc<AreaService>,
    pub(super) clock: Arc<dyn Clock>,
    /// Files on their way into the volume.
    pub(super) arrivals: Arc<Arrivals>,
}

/// How a file ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// It is there now.
    Done,
    /// It was not to be copied.
    Skipped,
}

/// What the first step of a file led to.
pub(super) enum First {
    /// Over.
    Ended(Ended),
    /// Its blocks are to be sent.
    Send(Arc<Outgoing>),
    /// Its blocks are to be written into the volume.
    Write(Arc<VolumeCopy>),
}

/// When a file that is there is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Overwrite {
    Always,
    Never,
    Newer,
    Different,
}

fn overwrite(spec: &proto::JobSpec) -> Overwrite {
    match (spec.overwrite, spec.resume) {
        (1, _) => Overwrite::Never,
        (2, _) => Overwrite::Newer,
        (3, _) | (0, true) => Overwrite::Different,
        _ => Overwrite::Always,
    }
}

/// As [`overwrite`], in the numbers of a job's specification.
pub(super) fn overwrite_number(spec: &proto::JobSpec) -> u32 {
    match overwrite(spec) {
        Overwrite::Always => 0,
        Overwrite::Never => 1,
        Overwrite::Newer => 2,
        Overwrite::Different => 3,
    }
}

impl Means {
    /// Opens the file that is to be read.
    pub(super) fn open(&self, client: &Client, source: &Place) -> Result<Arc<dyn Source>, Fault> {
        let shown = source.to_string();
        match source {
            Place::Area(reference) if reference.node == self.node => {
                let inside = self.area.inside(&reference.area, &reference.path, false)?;
                let waiting = inside.begin("opening a file to copy")?;
                let (file, status) = inside.open(false)?;
                drop(waiting);
                Ok(Arc::new(FileSource::inside(file, shown, Some(status.identity), inside)?))
            }
            Place::Area(reference) => {
                let why = format!("{shown}: node {} cannot read files of node {}", self.node, reference.node);
                Err(Fault::new(Code::Unsupported, why))
            }
            Place::Volume(path) => {
                let about = |error| of_client(error, &shown);
                let mode = OpenMode { read: true, ..OpenMode::default() };
                let (_, file) = client.open_path(path, mode).map_err(about)?;
                Ok(Arc::new(VolumeSource::new(file, shown)))
            }
        }
    }

    pub(super) fn around(
        &self,
        client: &Client,
        control: &Arc<Control>,
        counts: &Arc<Counts>,
    ) -> Surroundings {
        Surroundings {
            transport: client.transport(),
            clock: Arc::clone(&self.clock),
            control: Arc::clone(control),
            counts: Arc::clone(counts),
            node: self.node.clone(),
        }
    }

    /// Where a file of a plan goes.
    pub(super) fn destination(
        &self,
        client: &Client,
        entry: &proto::PlanEntry,
    ) -> Result<Destination, Fault> {
        let target = Place::parse(&entry.destination)?;
        let Place::Area(to) = target else {
            return Err(Fault::new(Code::Unsupported, format!("{target}: not a place for a job's files")));
        };
        let address = client.node_address(&to.node).map_err(|error| of_client(error, &to.node))?;
        Ok(Destination { node: to.node, address, area: to.area, path: to.path })
    }

    /// Decides about a file and begins it.
    pub(super) fn first(&self, client: &Client, job: &Job, entry: &proto::PlanEntry) -> Result<First, Fault> {
        let (source, target) = (Place::parse(&entry.source)?, Place::parse(&entry.destination)?);
        if !is_wanted(client, &job.spec, &source, &target, entry)? {
            return Ok(First::Ended(Ended::Skipped));
        }
        if FileKind::from_number(entry.kind) == Some(FileKind::Symlink) {
            copy_link(client, &job.spec, entry, &source, &target)?;
            return Ok(First::Ended(Ended::Done));
        }
        let file = self.open(client, &source)?;
        let manner = Manner {
            fresh: false,
            no_replace: overwrite(&job.spec) == Overwrite::Never,
            read_back: job.spec.checksum,
        };
        let around = self.around(client, &job.control, &job.counts);
        around.control.check(around.clock.now_ns())?;
        if let Place::Volume(to) = &target {
            let (uid, gid) = volume::owner_of(&job.spec, entry);
            let owner = volume::Owner { uid, gid, bits: volume::bits_of(&job.spec, entry) };
            return Ok(match volume::begin(&self.arrivals, client, file, around, to, manner, owner)? {
                Begun::Complete => First::Ended(Ended::Done),
                Begun::Ready(copy) => First::Write(copy),
            });
        }
        let destination = self.destination(client, entry)?;
        if file.version()?.size <= WHOLE_BYTES_MAX && !manner.read_back {
            send_whole(&*file, &around, &destination, manner)?;
            return Ok(First::Ended(Ended::Done));
        }
        Ok(match begin(file, around, destination, manner)? {
            Started::Complete => First::Ended(Ended::Done),
            Started::Ready(copy) => First::Send(copy),
        })
    }
}

/// Whether a file is to be copied, as far as what lies at its destination decides.
fn is_wanted(
    client: &Client,
    spec: &proto::JobSpec,
    source: &Place,
    target: &Place,
    entry: &proto::PlanEntry,
) -> Result<bool, Fault> {
    let overwrite = overwrite(spec);
    if overwrite == Overwrite::Always {
        return Ok(true);
    }
    let Some(there) = find(client, target, false)? else { return Ok(true) };
    let modified = entry
        .modified
        .map(vazao_model::Timestamp::from)
        .ok_or_else(|| Fault::new(Code::Internal, format!("{source}: a plan without a time")))?;
    Ok(match overwrite {
        Overwrite::Always => true,
        Overwrite::Never => false,
        Overwrite::Newer => modified > there.modified,
        Overwrite::Different => there.size != entry.size || there.modified != modified,
    })
}

fn copy_link(
    client: &Client,
    spec: &proto::JobSpec,
    entry: &proto::PlanEntry,
    source: &Place,
    to: &Place,
) -> Result<(), Fault> {
    let shown = source.to_string();
    let target = match source {
        Place::Area(r) => client.area(&r.node, &r.area).read_link(&r.path),
        Place::Volume(path) => {
            let inode = client.resolve(path, false).map(|attributes| attributes.inode);
            inode.and_then(|inode| client.read_link(inode))
        }
    };
    let target = target.map_err(|error| of_client(error, &shown))?;
    match to {
        Place::Area(to) => area_link(client, spec, entry, to, &target),
        Place::Volume(path) => volume::make_link(client, spec, entry, path, target),
    }
}

fn area_link(
    client: &Client,
    spec: &proto::JobSpec,
    entry: &proto::PlanEntry,
    to: &Reference,
    target: &[u8],
) -> Result<(), Fault> {
    let area = client.area(&to.node, &to.area);
    let about = |error| of_client(error, &to.to_string());
    let keep_time = |path: &[u8]| match preserved_time(spec, entry) {
        Some(time) => {
            let changes = AreaChanges { modified: Some(time), ..AreaChanges::default() };
            area.set_attributes(path, &changes).map(drop)
        }
        None => Ok(()),
    };
    match area.symlink(&to.path, target) {
        Err(error) if error.code == Code::Exists => {}
        other => return other.and_then(|_| keep_time(&to.path)).map_err(about),
    }
    if area.stat(&to.path, false).map_err(about)?.kind == FileKind::Directory {
        return Err(Fault::new(Code::IsDirectory, to.to_string()));
    }
    let suffix = [&to.path[..], b".vazao-link.part"].concat();
    let _ = area.remove(&suffix);
    area.symlink(&suffix, target).and_then(|_| keep_time(&suffix)).map_err(about)?;
    area.rename(&suffix, &to.path, RenameMode::Replace).map_err(about)
}

/// Makes a directory of the plan, or finds that it is there.
pub(super) fn make_directory(
    client: &Client,
    spec: &proto::JobSpec,
    entry: &proto::PlanEntry,
) -> Result<(), Fault> {
    let to = match &Place::parse(&entry.destination)? {
        Place::Area(to) => to.clone(),
        Place::Volume(path) => return volume::make_directory(client, spec, entry, path),
    };
    let area = client.area(&to.node, &to.area);
    let about = |error| of_client(error, &to.to_string());
    if to.path.is_empty() {
        return area.stat(b"", true).map(drop).map_err(about);
    }
    // The owner has to be able to fill it, whatever the source's permissions say.
    match area.make_directory(&to.path, entry.mode & 0o777 | 0o700) {
        Err(error) if error.code == Code::Exists => {
            let there = area.stat(&to.path, true).map_err(about)?;
            match there.kind {
                FileKind::Directory => Ok(()),
                _ => Err(Fault::new(Code::NotDirectory, to.to_string())),
            }
        }
        other => other.map(drop).map_err(about),
    }
}

/// The time of last change that a directory or a link is to have; files have it in any case.
fn preserved_time(spec: &proto::JobSpec, entry: &proto::PlanEntry) -> Option<Timestamp> {
    entry.modified.filter(|_| spec.preserve).map(Timestamp::from)
}

/// Gives a directory of the plan its permissions, and with `preserve` its time, once it is filled.
pub(super) fn finish_directory(
    client: &Client,
    spec: &proto::JobSpec,
    entry: &proto::PlanEntry,
) -> Result<(), Fault> {
    let to = match Place::parse(&entry.destination)? {
        Place::Area(to) => to,
        Place::Volume(path) => return volume::finish_directory(client, spec, entry, &path),
    };
    let is_settled = entry.mode & 0o700 == 0o700 && !spec.preserve;
    if to.path.is_empty() || is_settled {
        return Ok(());
    }
    let modified = preserved_time(spec, entry);
    let changes = AreaChanges { mode: Some(entry.mode & 0o777), modified, ..AreaChanges::default() };
    let area = client.area(&to.node, &to.area);
    area.set_attributes(&to.path, &changes).map(drop).map_err(|error| of_client(error, &to.to_string()))
}
