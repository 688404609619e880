//! OpenLocal: the files of a chunk for a client on this machine, which reads and verifies them by itself.
//!
//! The descriptors are opened anew, for reading only, while the object cannot be removed. What the client reads is what
//! its checksums say, or it asks the server: a write under way is nothing it could mistake for damage.

use crate::object::Mode;
use crate::object::names::{self, Part};
use crate::service::{DataService, fault};
use crate::targets::Target;
use std::os::fd::OwnedFd;
use vazao_disk::Open;
use vazao_model::{Code, ObjectId};
use vazao_wire::local::LocalService;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Data and sidecar.
type Pair = [OwnedFd; 2];

impl Target {
    /// The files of a chunk that exists, repaired where an unclean stop may have torn it.
    pub(crate) fn open_local(&self, id: ObjectId, chunk: u64) -> Result<Option<Pair>, Fault> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking);
        let body = self.open_to_read(&object, chunk..=chunk, Mode::Blocking).map_err(fault)?;
        if body.files(chunk).is_none() {
            return Ok(None);
        }
        let open = |part| {
            let path = names::path(id, chunk, part);
            let file = self.disk.open(&path, Open::ReadOnly).map_err(|e| self.read_fault(&path, &e))?;
            let no_descriptor =
                || Fault::new(Code::Unsupported, format!("{self}: its disk has no descriptors"));
            file.descriptor().ok_or_else(no_descriptor)
        };
        Ok(Some([open(Part::Data)?, open(Part::Sums)?]))
    }
}

impl LocalService for DataService {
    fn hand_out(
        &self,
        request: &proto::OpenLocalRequest,
    ) -> Result<(proto::OpenLocalResponse, Option<Pair>), Fault> {
        let (target, id) = self.serving_target_of(request.object.as_ref())?;
        if self.agreed(id.group).is_some() {
            let text = format!(
                "object {id} has several copies: whether this one counts, its server says with each read"
            );
            return Err(Fault::new(Code::Unsupported, text));
        }
        super::check_range(id, request.chunk.saturating_mul(target.chunk_bytes), 0)?;
        // By the local client's own thread, which no other request needs; a disk that is known to hang does not even
        // get that.
        target.waits.check()?;
        let files = target.waits.during("OpenLocal", || target.open_local(id, request.chunk))?;
        let response = proto::OpenLocalResponse { missing: files.is_none(), chunk_bytes: target.chunk_bytes };
        Ok((response, files))
    }

    fn borrow(&self, number: u64, memory: OwnedFd) -> Result<(), Fault> {
        self.lent.borrow(number, memory);
        Ok(())
    }

    fn give_back(&self, number: u64) {
        self.lent.give_back(number);
    }
}
