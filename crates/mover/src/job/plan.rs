//! What a job will copy, found once: sources listed, destinations named, filters applied.

use super::filter::Filter;
use super::itself;
use crate::control::may_pass;
use crate::place::Place;
use crate::source::of_client;
use vazao_client::Client;
use vazao_client::area::Reference;
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Attributes, Code, FileKind, InodeId, NodeState, VolumePath};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Directories on the way down: deeper ones are a loop or a mistake.
const DEPTH_MAX: usize = 512;

/// Makes plans.
pub struct Planner<'a> {
    client: &'a Client,
    filter: Filter,
    recursive: bool,
}

/// Gets the name and attributes of each entry of a directory.
type EachName<'e> = dyn FnMut(&[u8], &Attributes) -> Result<(), Fault> + 'e;

/// Gets each entry, directories before what is in them.
pub(crate) type Each<'e> = dyn FnMut(proto::PlanEntry) -> Result<(), Fault> + 'e;

fn stat(client: &Client, place: &Place, follow: bool) -> Result<Attributes, Fault> {
    let attributes = match place {
        Place::Area(r) => client.area(&r.node, &r.area).stat(&r.path, follow),
        Place::Volume(path) => client.resolve(path, follow),
    };
    attributes.map_err(|error| of_client(error, &place.to_string()))
}

/// What lies at a place; `None` where nothing does.
pub fn find(client: &Client, place: &Place, follow: bool) -> Result<Option<Attributes>, Fault> {
    match stat(client, place, follow) {
        Ok(attributes) => Ok(Some(attributes)),
        // Errors of nodes and areas that are not there name them; one of the path names the path.
        Err(fault) if fault.code == Code::NotFound && is_reachable(client, place) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn is_reachable(client: &Client, place: &Place) -> bool {
    match place {
        Place::Area(r) => client.area(&r.node, &r.area).stat(b"", true).is_ok(),
        Place::Volume(_) => true,
    }
}

fn entry(kind: FileKind, source: &Place, destination: &Place, attributes: &Attributes) -> proto::PlanEntry {
    proto::PlanEntry {
        kind: kind.number(),
        source: source.to_bytes(),
        destination: destination.to_bytes(),
        size: if kind == FileKind::File { attributes.size } else { 0 },
        mode: attributes.mode,
        modified: Some(attributes.modified.into()),
        uid: attributes.uid,
        gid: attributes.gid,
    }
}

impl<'a> Planner<'a> {
    /// A planner for `spec`.
    pub fn new(client: &'a Client, spec: &proto::JobSpec) -> Result<Planner<'a>, Fault> {
        let filter = Filter::parse(&spec.filters).map_err(|why| Fault::new(Code::Invalid, why))?;
        Ok(Planner { client, filter, recursive: spec.recursive })
    }

    /// Calls `each` for all that is to be copied. Errors: a source that is not there, a destination that cannot be.
    pub fn run(&self, sources: &[Place], destination: &Destined, each: &mut Each<'_>) -> Result<(), Fault> {
        for (source, target, attributes) in self.roots(sources, destination)? {
            match attributes.kind {
                FileKind::Directory => self.directory(&source, &target, &attributes, each)?,
                kind => each(entry(kind, &source, &target, &attributes))?,
            }
        }
        Ok(())
    }

    /// The sources, where each goes, and what it is.
    fn roots(
        &self,
        sources: &[Place],
        destination: &Destined,
    ) -> Result<Vec<(Place, Place, Attributes)>, Fault> {
        let there = find(self.client, &destination.place, true)?;
        let is_directory = there.as_ref().is_some_and(|there| there.kind == FileKind::Directory);
        let refuse = |code, why: &str| Err(Fault::new(code, format!("{}: {why}", destination.place)));
        if !is_directory && (sources.len() > 1 || (destination.slash && there.is_some())) {
            return refuse(Code::NotDirectory, "a directory is needed to copy into");
        }
        let mut roots = Vec::new();
        for source in sources {
            let attributes = stat(self.client, source, !self.recursive)?;
            let target = match (is_directory, source.name()) {
                (true, Some(name)) => destination.place.join(name),
                _ => destination.place.clone(),
            };
            if target == *source {
                return Err(Fault::new(Code::Invalid, format!("{source} and {target} are the same file")));
            }
            if attributes.kind != FileKind::Symlink {
                itself::check(self.client, source, &target, attributes.kind == FileKind::Directory)?;
            }
            if attributes.kind == FileKind::Directory {
                self.check_directory(source)?;
            } else if destination.slash && !is_directory {
                return refuse(Code::NotFound, "no such directory; make it with mkdir first");
            }
            roots.push((source.clone(), target, attributes));
        }
        let above = itself::above(&destination.place).filter(|_| there.is_none());
        if let Some(above) = above {
            let kind = find(self.client, &above, true)?.map(|above| above.kind);
            match kind {
                Some(FileKind::Directory) => {}
                Some(_) => return Err(Fault::new(Code::NotDirectory, above.to_string())),
                None => return Err(Fault::new(Code::NotFound, format!("{above}: make it with mkdir first"))),
            }
        }
        Ok(roots)
    }

    fn check_directory(&self, source: &Place) -> Result<(), Fault> {
        if !self.recursive {
            let why = format!("{source}: give -r to copy it with all that is in it");
            return Err(Fault::new(Code::IsDirectory, why));
        }
        Ok(())
    }

    fn directory(
        &self,
        source: &Place,
        target: &Place,
        attributes: &Attributes,
        each: &mut Each<'_>,
    ) -> Result<(), Fault> {
        let filled = itself::Filled::find(self.client, target)?;
        // Directories to be listed: source, destination, path below the root of the copy.
        let mut waiting = vec![(source.clone(), target.clone(), Vec::new(), 0)];
        each(entry(FileKind::Directory, source, target, attributes))?;
        while let Some((source, target, path, depth)) = waiting.pop() {
            if depth > DEPTH_MAX {
                return Err(Fault::new(
                    Code::Loop,
                    format!("{source}: more than {DEPTH_MAX} directories deep"),
                ));
            }
            self.pages(&source, &mut |name, attributes| {
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                let below = [&path, slash, name].concat();
                let (from, to) = (source.join(name), target.join(name));
                match attributes.kind {
                    FileKind::Directory if self.filter.enters(&below) => {
                        filled.check(self.client, &from, attributes)?;
                        each(entry(FileKind::Directory, &from, &to, attributes))?;
                        waiting.push((from, to, below, depth + 1));
                        Ok(())
                    }
                    FileKind::File | FileKind::Symlink if self.filter.takes_file(&below) => {
                        each(entry(attributes.kind, &from, &to, attributes))
                    }
                    _ => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    fn pages(&self, directory: &Place, each: &mut EachName<'_>) -> Result<(), Fault> {
        match directory {
            Place::Area(reference) => self.area_pages(reference, each),
            Place::Volume(path) => self.volume_pages(path, each),
        }
    }

    fn area_pages(&self, reference: &Reference, each: &mut EachName<'_>) -> Result<(), Fault> {
        let area = self.client.area(&reference.node, &reference.area);
        let mut cookie = 0;
        loop {
            let page = area.list(&reference.path, cookie, LIST_ENTRIES_MAX, true);
            let page = page.map_err(|error| of_client(error, &reference.to_string()))?;
            for entry in &page.entries {
                // An entry without attributes is gone again.
                if let Some(attributes) = &entry.attributes {
                    each(&entry.name, attributes)?;
                }
            }
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => return Ok(()),
            }
        }
    }

    fn volume_pages(&self, path: &VolumePath, each: &mut EachName<'_>) -> Result<(), Fault> {
        let shown = Place::Volume(path.clone()).to_string();
        let about = |error| of_client(error, &shown);
        let directory: InodeId = self.client.resolve(path, true).map_err(about)?.inode;
        let mut cookie = 0;
        loop {
            let page = self.client.list(directory, cookie, LIST_ENTRIES_MAX, true).map_err(about)?;
            for entry in &page.entries {
                if let Some(attributes) = &entry.attributes {
                    each(&entry.name, attributes)?;
                }
            }
            match page.entries.last() {
                Some(last) if !page.end => cookie = last.cookie,
                _ => return Ok(()),
            }
        }
    }
}

/// Finds out beforehand whether a job can be: that its sources, its destination's area and directory are there, and may
/// be written to. What may pass until the job is at it is no reason to refuse it. Errors: what would fail it.
pub(crate) fn check(client: &Client, spec: &proto::JobSpec) -> Result<(), Fault> {
    let sources = spec.sources.iter().map(|source| Place::parse(source)).collect::<Result<Vec<_>, _>>()?;
    let destination = Destined::parse(&spec.destination)?;
    let map = client.map();
    // A node that is down the job waits for: to ask it would be to wait here.
    let is_silent = |place: &Place| match place {
        Place::Area(reference) => {
            map.nodes.iter().any(|node| node.name == reference.node && node.state == NodeState::Silent)
        }
        Place::Volume(_) => false,
    };
    if is_silent(&destination.place) || sources.iter().any(is_silent) {
        return Ok(());
    }
    let checked = Planner::new(client, spec)?.roots(&sources, &destination);
    match checked.and_then(|_| check_writable(client, &destination.place)) {
        Err(fault) if may_pass(fault.code) => Ok(()),
        other => other,
    }
}

fn check_writable(client: &Client, place: &Place) -> Result<(), Fault> {
    let Place::Area(reference) = place else { return Ok(()) };
    let areas = client.areas(&reference.node).map_err(|error| of_client(error, &place.to_string()))?;
    match areas.iter().any(|area| *area.name == *reference.area && area.read_only) {
        true => Err(Fault::new(Code::ReadOnly, format!("{place}: the area is exported read-only"))),
        false => Ok(()),
    }
}

/// The last argument of a copy.
#[derive(Clone, Debug)]
pub struct Destined {
    /// Where.
    pub place: Place,
    /// It ends in a slash: it has to be a directory.
    pub slash: bool,
}

impl Destined {
    /// Reads it.
    pub fn parse(text: &[u8]) -> Result<Destined, Fault> {
        Ok(Destined { place: Place::parse(text)?, slash: text.ends_with(b"/") })
    }
}
