//! Ranges that are copied on the server, into an object with several copies: the primary reads them once and has them
//! written by all.

use super::change::{Body, Change};
use crate::ops::copy::{Place, check};
use crate::service::{DataService, read_blocking};
use prost::Message;
use vazao_model::Code;
use vazao_model::checksum::{first_mismatch, piece_count};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault};

impl DataService {
    /// Copies a range as several changes of the object that it goes to.
    pub(crate) fn copy_to_all(&self, request: &proto::CopyObjectRangeRequest, deadline_ns: u64) -> Answer {
        self.may_read(request.source.as_ref())?;
        let (source, source_id) = self.target_of(request.source.as_ref())?;
        let (_, id) = self.target_of(request.object.as_ref())?;
        let from = Place { object: source_id, offset: request.source_offset };
        check(from, Place { object: id, offset: request.offset }, request.length)?;
        let (message, bytes) = read_blocking(source, source_id, from.offset, request.length)?;
        self.may_read(request.source.as_ref())?;
        let read: proto::ReadResponse = super::change::decoded(&message)?;
        if read.missing {
            return Err(Fault::new(Code::NotFound, format!("object {source_id}")));
        }
        let is_whole = read.checksums.len() == piece_count(from.offset, bytes.len());
        if !is_whole || first_mismatch(from.offset, &bytes, &read.checksums).is_some() {
            let why = format!("object {source_id}: bytes to be copied do not match their checksums");
            return Err(Fault::new(Code::Corrupt, why));
        }
        let mut boot = 0;
        for change in steps(request, read.checksums, bytes) {
            let (message, _) = self.make(&change, deadline_ns)?;
            boot = match change.body {
                Body::Punch(_) => super::change::decoded::<proto::PunchObjectResponse>(&message)?.boot,
                _ => boot,
            };
        }
        Ok((proto::CopyObjectRangeResponse { boot }.encode_to_vec(), Vec::new()))
    }
}

/// The object is made, also by a copy of zeros, and has to be there from then on; what was read is written, or a hole;
/// beyond it there are zeros.
fn steps(request: &proto::CopyObjectRangeRequest, checksums: Vec<u32>, bytes: Vec<u8>) -> Vec<Change> {
    let (object, offset) = (request.object.clone(), request.offset);
    let copied = bytes.len() as u64;
    let make =
        proto::WriteRequest { object: object.clone(), must_exist: request.must_exist, ..Default::default() };
    let hole = |offset: u64, length: u64| {
        Change::new(Body::Punch(proto::PunchObjectRequest {
            object: object.clone(),
            offset,
            length,
            must_exist: true,
        }))
    };
    let there = match bytes.iter().any(|byte| *byte != 0) {
        true => {
            let body = proto::WriteRequest {
                object: object.clone(),
                offset,
                checksums,
                must_exist: true,
                ..Default::default()
            };
            Change { body: Body::Write(body), bytes }
        }
        false => hole(offset, copied),
    };
    let rest = hole(offset.saturating_add(copied), u64::from(request.length).saturating_sub(copied));
    vec![Change::new(Body::Write(make)), there, rest]
}
