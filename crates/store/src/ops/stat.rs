//! StatObject: length and space of an object.

use crate::object::names::{self, Part};
use crate::object::{Mode, Stop};
use crate::targets::Target;
use vazao_model::ObjectId;
use vazao_wire::proto::StatObjectResponse;

impl Target {
    /// Length of an object and the storage its data takes.
    pub(crate) fn stat(&self, id: ObjectId) -> Result<StatObjectResponse, Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        let mut response =
            StatObjectResponse { exists: body.exists(), length: body.length, allocated_bytes: 0 };
        let chunks: Vec<u64> = body.chunks.keys().copied().collect();
        drop(body);
        for index in chunks {
            let body = self.open_to_read(&object, index..=index, Mode::Blocking)?;
            let Some(files) = body.files(index) else { continue };
            let allocated = files.data.allocated_bytes();
            let allocated =
                allocated.map_err(|e| self.read_fault(&names::path(id, index, Part::Data), &e))?;
            response.allocated_bytes = response.allocated_bytes.saturating_add(allocated);
        }
        Ok(response)
    }

    /// Whether an object is there.
    pub(crate) fn exists(&self, id: ObjectId) -> Result<bool, Stop> {
        let object = self.cache.get(id);
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        Ok(body.exists())
    }

    /// Whether an object is there, and how long it is.
    pub(crate) fn extent(&self, id: ObjectId) -> Result<(bool, u64), Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        Ok((body.exists(), body.length))
    }
}
