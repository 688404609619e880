//! Resolve: a whole path in one round trip, up to its end or to a symbolic link.

use crate::schema::records::InodeRecord;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use vazao_model::{Code, FileKind, InodeId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

pub(crate) fn run(
    context: &mut Context<'_>,
    request: &proto::ResolveRequest,
) -> Outcome<proto::ResolveResponse> {
    let bytes: usize = request.components.iter().map(|c| c.len() + 1).sum();
    if bytes > limits::PATH_BYTES_MAX + 1 {
        return Err(Fault::new(Code::NameTooLong, format!("path of {bytes} bytes")));
    }
    let mut id = InodeId(request.start);
    let mut record = context.inode(id)?;
    let mut parent = if record.is_directory() { InodeId(record.parent) } else { InodeId(0) };
    let mut walked = 0;
    for component in &request.components {
        if is_link(&record) {
            break;
        }
        parent = id;
        id = context.step(parent, component)?;
        record = context.named_inode(id)?;
        walked += 1;
    }
    let inode = if is_link(&record) {
        context.inode_with_contents(id, record)?
    } else {
        context.inode_message(id, &record)?
    };
    Ok(proto::ResolveResponse { inode: Some(inode), walked, parent: parent.0 })
}

fn is_link(record: &InodeRecord) -> bool {
    record.file_kind() == FileKind::Symlink
}
