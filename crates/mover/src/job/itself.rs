//! Jobs that would copy something into or onto itself, noticed by whatever names its two ends have: two areas of one
//! directory, an area on a mount and `vz:`, hard links.

use crate::place::Place;
use crate::source::of_client;
use vazao_client::Client;
use vazao_client::area::Reference;
use vazao_model::{Attributes, Code};
use vazao_wire::service::Fault;

/// What a place leads to, under the name that all ways to it give; `None` where nothing is, or no area.
fn origin(client: &Client, place: &Place) -> Result<Option<Vec<u8>>, Fault> {
    let found = match place {
        Place::Area(r) => client.area(&r.node, &r.area).origin(&r.path),
        Place::Volume(path) => client.resolve(path, true).map(|attributes| client.origin(attributes.inode)),
    };
    match found {
        // What is missing is told of when it is used.
        Err(error) if error.code == Code::NotFound => Ok(None),
        other => other.map(Some).map_err(|error| of_client(error, &place.to_string())),
    }
}

/// The directory above; `None` above the volume's root and an area's.
pub(super) fn above(place: &Place) -> Option<Place> {
    match place {
        Place::Volume(path) => path.split_last().map(|(above, _)| Place::Volume(above)),
        Place::Area(reference) => {
            let name = reference.name()?;
            let rest = &reference.path[..reference.path.len() - name.len()];
            let path = rest.strip_suffix(b"/").unwrap_or(rest).to_vec();
            Some(Place::Area(Reference { path, identity: None, ..reference.clone() }))
        }
    }
}

fn into_itself(source: &Place, target: &Place) -> Fault {
    Fault::new(Code::Invalid, format!("{source}: cannot be copied into itself: {target} lies in it"))
}

/// Refuses a file that is to replace itself, and a directory that would go into itself.
pub(super) fn check(
    client: &Client,
    source: &Place,
    target: &Place,
    is_directory: bool,
) -> Result<(), Fault> {
    let Some(ours) = origin(client, source)? else { return Ok(()) };
    if origin(client, target)?.as_ref() == Some(&ours) {
        return Err(Fault::new(Code::Invalid, format!("{source} and {target} are the same file")));
    }
    let mut here = above(target).filter(|_| is_directory);
    while let Some(place) = here {
        if origin(client, &place)?.as_ref() == Some(&ours) {
            return Err(into_itself(source, target));
        }
        here = above(&place);
    }
    Ok(())
}

/// The directory that a job fills, where it is there already: a source may have it under another name.
pub(super) struct Filled {
    there: Option<(Place, u64, Vec<u8>)>,
}

impl Filled {
    pub(super) fn find(client: &Client, target: &Place) -> Result<Filled, Fault> {
        let Some(origin) = origin(client, target)? else { return Ok(Filled { there: None }) };
        let found = super::plan::find(client, target, true)?;
        Ok(Filled { there: found.map(|found| (target.clone(), found.inode.0, origin)) })
    }

    /// Refuses a directory of the source that is it. Another inode number is another directory, which spares the
    /// question for nearly all.
    pub(super) fn check(&self, client: &Client, here: &Place, attributes: &Attributes) -> Result<(), Fault> {
        match &self.there {
            Some((target, inode, theirs)) if attributes.inode.0 == *inode => {
                match origin(client, here)?.as_ref() == Some(theirs) {
                    true => Err(into_itself(here, target)),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
