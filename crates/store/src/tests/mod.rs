//! Tests of the whole server, through the same calls that a client makes.

mod crash;
mod damage;
mod faults;
mod former;
mod freezes;
mod harmed;
mod hung;
mod late;
mod leases;
mod list_io;
mod model;
mod place;
mod replaced;
mod restore;
mod scrub;
mod service;
mod targets;
mod threads;

use crate::object::names::{self, Part};
use crate::{DataService, OpenError, Options};
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk};
use vazao_meter::{Clock, ManualClock};
use vazao_model::checksum::{first_mismatch, piece_checksums};
use vazao_wire::inline::InlineTransport;
use vazao_wire::op;
use vazao_wire::proto::{self, ObjectAddress};
use vazao_wire::service::Fault;
use vazao_wire::transport::{call, submit};

/// Chunks small enough that tests cross their boundaries.
pub(crate) const CHUNK: u64 = 256 * 1024;

const ADDRESS: &str = "data:1";

/// Options for tests: inline, small chunks, no reserve.
pub(crate) fn options() -> Options {
    Options {
        inline: true,
        reserve_bytes: Some(0),
        chunk_bytes: CHUNK,
        open_chunks_max: 6,
        ..Options::default()
    }
}

/// A server on a disk in memory, and a client of it.
pub(crate) struct Rig {
    pub(crate) disk: MemoryDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) service: Arc<DataService>,
    transport: Arc<InlineTransport>,
    options: Options,
}

/// What a read brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReadBack {
    pub(crate) bytes: Vec<u8>,
    pub(crate) object_length: u64,
    pub(crate) missing: bool,
}

/// The address of an object on the only target.
pub(crate) fn address(inode: u64) -> ObjectAddress {
    // Every other object is one of a placement group.
    let group = if inode.is_multiple_of(2) { vazao_model::GroupId::FIRST + (inode % 3) as u32 } else { 0 };
    ObjectAddress { target: 1, inode, generation: 1, group, ..ObjectAddress::default() }
}

/// Path of a chunk's data file.
pub(crate) fn data_path(inode: u64, chunk: u64) -> String {
    names::path((&address(inode)).into(), chunk, Part::Data)
}

/// Path of a chunk's sidecar.
pub(crate) fn sums_path(inode: u64, chunk: u64) -> String {
    names::path((&address(inode)).into(), chunk, Part::Sums)
}

impl Rig {
    pub(crate) fn new(seed: u64) -> Rig {
        Rig::with(MemoryDisk::new(seed), options())
    }

    pub(crate) fn with(disk: MemoryDisk, options: Options) -> Rig {
        let clock = Arc::new(ManualClock::default());
        let transport = InlineTransport::new(clock.clone());
        let service = start(&disk, &options, &clock).expect("opens");
        transport.serve(ADDRESS, service.clone());
        Rig { disk, clock, service, transport, options }
    }

    /// Starts the server again without stopping it, as after a kill.
    pub(crate) fn restart(&mut self) {
        self.disk.kill();
        self.start_again();
    }

    /// Cuts the power and starts the server again.
    pub(crate) fn crash(&mut self) {
        self.disk.crash();
        self.start_again();
    }

    pub(crate) fn start_again(&mut self) {
        self.transport.stop(ADDRESS);
        self.service = start(&self.disk, &self.options, &self.clock).expect("opens again");
        self.transport.serve(ADDRESS, self.service.clone());
    }

    fn deadline(&self) -> u64 {
        self.clock.now_ns() + 30_000_000_000
    }

    pub(crate) fn write(&self, inode: u64, offset: u64, bytes: &[u8]) -> Result<u64, Fault> {
        self.write_with(inode, offset, bytes, piece_checksums(offset, bytes), false)
    }

    pub(crate) fn write_with(
        &self,
        inode: u64,
        offset: u64,
        bytes: &[u8],
        checksums: Vec<u32>,
        sync: bool,
    ) -> Result<u64, Fault> {
        let request = proto::WriteRequest {
            object: Some(address(inode)),
            offset,
            checksums,
            sync,
            must_exist: false,
            lent: None,
        };
        self.write_response(&request, bytes).map(|response| response.object_length)
    }

    pub(crate) fn write_response(
        &self,
        request: &proto::WriteRequest,
        bytes: &[u8],
    ) -> Result<proto::WriteResponse, Fault> {
        let pending = submit::<op::Write>(&*self.transport, ADDRESS, request, bytes, self.deadline());
        pending.wait().map(|(response, _)| response)
    }

    /// Any request.
    pub(crate) fn ask<O: vazao_wire::Operation>(
        &self,
        request: &O::Request,
        bytes: &[u8],
    ) -> Result<(O::Response, vazao_wire::transport::Buffer), Fault> {
        submit::<O>(&*self.transport, ADDRESS, request, bytes, self.deadline()).wait()
    }

    /// Reads as a client does: what does not match its checksum fails the test.
    pub(crate) fn read(&self, inode: u64, offset: u64, length: u32) -> Result<ReadBack, Fault> {
        let (read, mismatch) = self.read_unverified(inode, offset, length)?;
        assert_eq!(mismatch, None, "object {inode} at {offset}+{length}");
        Ok(read)
    }

    /// Reads, and says which piece does not match.
    pub(crate) fn read_unverified(
        &self,
        inode: u64,
        offset: u64,
        length: u32,
    ) -> Result<(ReadBack, Option<usize>), Fault> {
        let request = proto::ReadRequest { object: Some(address(inode)), offset, length };
        let pending = submit::<op::Read>(&*self.transport, ADDRESS, &request, &[], self.deadline());
        let (response, attachment) = pending.wait()?;
        let mismatch = first_mismatch(offset, &attachment, &response.checksums);
        let proto::ReadResponse { object_length, missing, .. } = response;
        Ok((ReadBack { bytes: attachment.to_vec(), object_length, missing }, mismatch))
    }

    /// A whole object; `None` when it is missing.
    pub(crate) fn read_all(&self, inode: u64) -> Result<Option<Vec<u8>>, Fault> {
        let mut bytes = Vec::new();
        loop {
            let read = self.read(inode, bytes.len() as u64, 300_000)?;
            if read.missing {
                return Ok(None);
            }
            bytes.extend_from_slice(&read.bytes);
            if bytes.len() as u64 >= read.object_length {
                return Ok(Some(bytes));
            }
        }
    }

    pub(crate) fn call<O: vazao_wire::Operation>(&self, request: &O::Request) -> Result<O::Response, Fault> {
        call::<O>(&*self.transport, ADDRESS, request, self.deadline())
    }

    pub(crate) fn truncate(&self, inode: u64, length: u64) -> Result<(), Fault> {
        let request =
            proto::TruncateObjectRequest { object: Some(address(inode)), length, must_exist: false };
        self.call::<op::TruncateObject>(&request).map(drop)
    }

    pub(crate) fn punch(&self, inode: u64, offset: u64, length: u64) -> Result<(), Fault> {
        let object = Some(address(inode));
        let request = proto::PunchObjectRequest { object, offset, length, must_exist: false };
        self.call::<op::PunchObject>(&request).map(drop)
    }

    /// Where an object has data, asked for `limit` ranges at a time.
    pub(crate) fn ranges(&self, inode: u64, limit: u32) -> Result<Vec<std::ops::Range<u64>>, Fault> {
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        loop {
            let offset = ranges.last().map_or(0, |last| last.end);
            let request = proto::ObjectRangesRequest { object: Some(address(inode)), offset, limit };
            let response = self.call::<op::ObjectRanges>(&request)?;
            assert!(response.ranges.len() <= limit as usize);
            ranges.extend(response.ranges.iter().map(|r| r.offset..r.offset + r.length));
            if response.complete {
                return Ok(ranges);
            }
        }
    }

    pub(crate) fn sync(&self, inode: u64) -> Result<(), Fault> {
        self.sync_since(inode, 0)
    }

    /// Syncs what was written in the life `boot` of the machine; 0: not said.
    pub(crate) fn sync_since(&self, inode: u64, boot: u64) -> Result<(), Fault> {
        let request = proto::SyncObjectsRequest { objects: vec![address(inode)], boot };
        self.call::<op::SyncObjects>(&request).map(drop)
    }

    /// Syncs several at once; returns how many of them are missing.
    pub(crate) fn sync_all(&self, inodes: &[u64]) -> Result<u64, Fault> {
        let objects = inodes.iter().map(|inode| address(*inode)).collect();
        let request = proto::SyncObjectsRequest { objects, boot: 0 };
        self.call::<op::SyncObjects>(&request).map(|response| response.missing)
    }

    pub(crate) fn remove(&self, inode: u64) -> Result<u64, Fault> {
        let request = proto::RemoveObjectsRequest { objects: vec![address(inode)] };
        self.call::<op::RemoveObjects>(&request).map(|response| response.removed)
    }

    pub(crate) fn stat(&self, inode: u64) -> Result<proto::StatObjectResponse, Fault> {
        self.call::<op::StatObject>(&proto::StatObjectRequest { object: Some(address(inode)) })
    }

    /// Inodes of all objects, listed in pages of `limit`.
    pub(crate) fn list(&self, limit: u32) -> Result<Vec<u64>, Fault> {
        let mut inodes = Vec::new();
        let mut cookie = Vec::new();
        loop {
            let request = proto::ListObjectsRequest { target: 1, cookie, limit, group: 0 };
            let page = self.call::<op::ListObjects>(&request)?;
            assert!(page.objects.len() <= limit as usize);
            inodes.extend(page.objects.iter().map(|o| o.inode));
            cookie = page.cookie;
            if cookie.is_empty() {
                return Ok(inodes);
            }
        }
    }

    /// Lets so much time pass that a checkpoint is due, and has the background work done.
    pub(crate) fn checkpoint(&self) {
        self.service.tick();
        self.clock.advance(Duration::from_secs(60));
        self.service.tick();
    }
}

/// Opens the target in `disk`, and gives it its id when it is new.
pub(crate) fn start(
    disk: &MemoryDisk,
    options: &Options,
    clock: &Arc<ManualClock>,
) -> Result<Arc<DataService>, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.boot());
    let service = DataService::open(vec![(disk, "/disk".to_owned())], options.clone(), clock.clone())?;
    let response = proto::RegisterNodeResponse {
        cluster_id: 7,
        node: 1,
        targets: vec![1],
        epoch: 1,
        ..Default::default()
    };
    service.set_registration(0, &response).expect("is registered");
    Ok(service)
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
