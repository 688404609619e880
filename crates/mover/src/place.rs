//! What a job copies and where to: areas of nodes, the volume, FTP servers.

use std::fmt;
use vazao_client::area::Reference;
use vazao_model::{Code, VolumePath};
use vazao_wire::service::Fault;

/// A place that a daemon can reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In an area of a node.
    Area(Reference),
    /// In the volume.
    Volume(VolumePath),
}

impl Place {
    /// Reads `NODE:/AREA/path` or `vz:/path`.
    pub fn parse(text: &[u8]) -> Result<Place, Fault> {
        if let Some(path) = text.strip_prefix(b"vz:") {
            let shown = || String::from_utf8_lossy(text).into_owned();
            return VolumePath::parse(path).map(Place::Volume).map_err(|code| Fault::new(code, shown()));
        }
        let reference = Reference::parse(text);
        reference.map(Place::Area).map_err(|error| Fault::new(Code::Invalid, error.detail))
    }

    /// The text form, byte by byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Place::Area(reference) => reference.to_bytes(),
            Place::Volume(path) => [b"vz:", path.to_bytes().as_slice()].concat(),
        }
    }

    /// What lies under `name` in it.
    pub fn join(&self, name: &[u8]) -> Place {
        match self {
            Place::Area(reference) => Place::Area(reference.join(name)),
            Place::Volume(path) => Place::Volume(path.join(name)),
        }
    }

    /// The last name; `None` for a root.
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Place::Area(reference) => reference.name(),
            Place::Volume(path) => path.components().last().map(Vec::as_slice),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}
