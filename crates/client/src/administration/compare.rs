//! Comparing the copies of a file: the primary of each object does it, piece by piece as this asks it.

use crate::core::Core;
use crate::data::addressed;
use crate::file::{FreshInode, object_address};
use crate::{Error, Result};
use prost::Message;
use std::collections::BTreeSet;
use vazao_model::{Code, InodeId, Layout, TargetId};
use vazao_wire::{Method, op, proto};

/// How often a file is begun anew that gets another layout meanwhile.
const LAYOUTS_MAX: usize = 8;

/// In which way a copy was not as the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyFault {
    /// A block does not match its checksum.
    Damaged,
    /// A block matches its checksum, and has other bytes than that of the primary.
    Differs,
    /// The object is not there; its target makes it anew by itself.
    Missing,
    /// No member that counts has the object, though the file has bytes in it. Its server knows, and fetches it from
    /// another member where that has all of it.
    Lost,
    /// The object has another length than at the primary.
    OtherEnd,
}

/// A place in which a copy was not as the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyDifference {
    /// Which object of the file.
    pub slot: u32,
    /// Where in the file.
    pub offset: u64,
    /// Whose copy.
    pub target: TargetId,
    /// What is wrong with it.
    pub fault: CopyFault,
    /// It is as the others now.
    pub repaired: bool,
}

/// What came of comparing the copies of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ComparedCopies {
    /// Objects with several copies that were compared.
    pub objects: u64,
    /// Objects of which there is one copy: nothing to compare.
    pub single: u64,
    /// Of one copy, holes included.
    pub bytes: u64,
    /// Members that have not caught up, and were not compared.
    pub lagging: BTreeSet<TargetId>,
    /// Where copies were not equal.
    pub differences: Vec<CopyDifference>,
    /// It was stopped before its end.
    pub is_stopped: bool,
}

/// See [`Administration::compare_copies`](super::Administration::compare_copies).
pub(super) fn compare_copies(
    core: &Core,
    inode: InodeId,
    repair: bool,
    progress: &dyn Fn(u64) -> bool,
) -> Result<ComparedCopies> {
    let mut layout = layout_of(core, inode)?;
    for _ in 0..LAYOUTS_MAX {
        let Some(of) = layout else {
            return Ok(ComparedCopies { single: 1, ..ComparedCopies::default() });
        };
        let compared = compare_layout(core, inode, &of, repair, progress);
        layout = layout_of(core, inode)?;
        // A conversion moves the bytes to other objects.
        if layout.as_ref().map(|layout| layout.generation) == Some(of.generation) {
            return compared;
        }
    }
    Err(Error::new(Code::Unavailable, format!("{inode}: it gets one layout after the other")))
}

fn layout_of(core: &Core, inode: InodeId) -> Result<Option<Layout>> {
    let request = proto::GetAttributesRequest { inode: inode.0, seat: 0 };
    let response = core.meta.ask::<op::GetAttributes>(&request)?;
    Ok(FreshInode::new(response.inode, 0)?.layout)
}

fn compare_layout(
    core: &Core,
    inode: InodeId,
    layout: &Layout,
    repair: bool,
    progress: &dyn Fn(u64) -> bool,
) -> Result<ComparedCopies> {
    let mut compared = ComparedCopies::default();
    for slot in 0..layout.width() {
        let Some(object) = object_address(inode.0, layout, slot) else { continue };
        if object.group == 0 {
            compared.single += u64::from(layout.is_written(slot));
            continue;
        }
        let mut offset = 0;
        loop {
            let answer = compare_some(core, &object, offset, repair)?;
            if offset == 0 && answer.exists {
                let is_single = answer.members.len() + answer.lagging.len() < 2;
                compared.single += u64::from(is_single);
                compared.objects += u64::from(!is_single);
            }
            compared.bytes += answer.bytes;
            compared.lagging.extend(answer.lagging.iter().copied().map(TargetId));
            for difference in &answer.differences {
                compared.differences.push(difference_of(layout, slot, difference)?);
            }
            let is_lost = offset == 0 && !answer.exists && layout.is_written(slot);
            if let Some(&target) = answer.members.first().filter(|_| is_lost) {
                report_missing(core, &object, TargetId(target));
                compared.objects += 1;
                let (target, offset) = (TargetId(target), file_offset(layout, slot, 0));
                let lost = CopyDifference { slot, offset, target, fault: CopyFault::Lost, repaired: false };
                compared.differences.push(lost);
            }
            if !progress(answer.bytes) {
                compared.is_stopped = true;
                return Ok(compared);
            }
            if answer.next <= offset {
                break;
            }
            offset = answer.next;
        }
    }
    Ok(compared)
}

fn compare_some(
    core: &Core,
    object: &proto::ObjectAddress,
    offset: u64,
    repair: bool,
) -> Result<proto::CompareCopiesResponse> {
    let deadline_ns = core.context.deadline_ns();
    let request = proto::CompareCopiesRequest { object: Some(object.clone()), offset, repair };
    let (group, method) = (addressed(object), Method::CompareCopies);
    let mut call = core.data.submit_data(group, method, request.encode_to_vec(), &[], deadline_ns);
    let received = core.data.finish_data(&mut call, &[], deadline_ns)?;
    Ok(crate::meta::decode::<op::CompareCopies>(&received)?)
}

fn difference_of(layout: &Layout, slot: u32, found: &proto::CopyDifference) -> Result<CopyDifference> {
    let fault = match found.what {
        1 => CopyFault::Damaged,
        2 => CopyFault::Differs,
        3 => CopyFault::Missing,
        4 => CopyFault::OtherEnd,
        other => {
            let text = format!(
                "a copy differs in a way ({other}) that this program does not know; use the same version everywhere"
            );
            return Err(Error::new(Code::VersionMismatch, text));
        }
    };
    let offset = file_offset(layout, slot, found.offset);
    Ok(CopyDifference { slot, offset, target: TargetId(found.target), fault, repaired: found.repaired })
}

fn file_offset(layout: &Layout, slot: u32, offset: u64) -> u64 {
    layout.distribution.file_offset(slot, offset, layout.width()).unwrap_or(offset)
}

/// Says to a server that it lacks an object. What was found does not depend on it.
fn report_missing(core: &Core, object: &proto::ObjectAddress, target: TargetId) {
    let deadline_ns = core.context.deadline_ns();
    let request =
        proto::ReportDamageRequest { object: Some(object.clone()), missing: true, ..Default::default() };
    let (group, message) = (addressed(object), request.encode_to_vec());
    let member = Some(target);
    let mut call = core.data.submit_to_member(group, member, Method::ReportDamage, message, deadline_ns);
    if let Err(error) = core.data.finish_data(&mut call, &[], deadline_ns) {
        tracing::debug!(%error, "a missing object could not be reported");
    }
}
