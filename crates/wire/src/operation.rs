//! The one table of operations: a method's number, its messages, the server that handles it, and whether a repetition
//! is safe.

use crate::proto;

/// An operation: ties a method number to its messages.
pub trait Operation {
    /// Its number in the frame header.
    const METHOD: Method;
    /// Its arguments.
    type Request: prost::Message + Default;
    /// Its result.
    type Response: prost::Message + Default;
}

/// Whether a request whose answer was lost may be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// Always: it changes nothing, or changes it to the same state again.
    Safe,
    /// Yes, with the same `Once`: the server then answers from its slot table.
    Once,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $request:ident, $response:ident, $repeat:ident;)*) => {
        /// The method number of a frame.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Method { $($(#[$doc])* $name = $number,)* }

        impl Method {
            /// Every method, in the order of the table.
            pub const ALL: &'static [Method] = &[$(Method::$name,)*];

            /// The method with this number, if there is one.
            pub fn from_number(number: u16) -> Option<Method> {
                match number { $($number => Some(Method::$name),)* _ => None }
            }

            /// Its number in the frame header.
            pub fn number(self) -> u16 { self as u16 }

            /// Its place in [`Method::ALL`].
            pub fn index(self) -> usize { PLACES[self as usize].into() }

            /// Its name in logs and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Method::$name => stringify!($name),)* }
            }

            /// Whether it may be sent again when its answer was lost.
            pub fn repeat(self) -> Repeat {
                match self { $(Method::$name => Repeat::$repeat,)* }
            }
        }

        /// A type for each operation, to name it in generic code: `op::Lookup`.
        pub mod op {
            use super::{Method, Operation, proto};
            $(
                $(#[$doc])*
                #[derive(Clone, Copy, Debug)]
                pub struct $name;
                impl Operation for $name {
                    const METHOD: Method = Method::$name;
                    type Request = proto::$request;
                    type Response = proto::$response;
                }
            )*
        }
    };
}

operations! {
    /// Answers at once; any node.
    Ping = 0x0001, PingRequest, PingResponse, Safe;
    /// What a node counts of itself and its machine; any node.
    Measure = 0x0002, MeasureRequest, MeasureResponse, Safe;

    /// A client's stay begins.
    OpenSession = 0x0101, OpenSessionRequest, OpenSessionResponse, Safe;
    /// Lease, map and orphans.
    RenewSession = 0x0102, RenewSessionRequest, RenewSessionResponse, Safe;
    /// A client's stay ends.
    CloseSession = 0x0103, CloseSessionRequest, CloseSessionResponse, Safe;
    /// The cluster map.
    GetClusterMap = 0x0104, GetClusterMapRequest, GetClusterMapResponse, Safe;
    /// A server's announcement and heartbeat.
    RegisterNode = 0x0105, RegisterNodeRequest, RegisterNodeResponse, Safe;
    /// An operator goes on with an old target, or with old metadata.
    AcceptOld = 0x0106, AcceptOldRequest, AcceptOldResponse, Safe;
    /// Who belongs to the placement groups of a target.
    GetGroups = 0x0107, GetGroupsRequest, GetGroupsResponse, Safe;
    /// What members say of one another.
    ReportMembers = 0x0108, ReportMembersRequest, ReportMembersResponse, Safe;
    /// An empty directory in the place of a lost target.
    ReplaceTarget = 0x0109, ReplaceTargetRequest, ReplaceTargetResponse, Safe;

    /// One name in one directory.
    Lookup = 0x0110, LookupRequest, LookupResponse, Safe;
    /// A whole path.
    Resolve = 0x0111, ResolveRequest, ResolveResponse, Safe;
    /// stat.
    GetAttributes = 0x0112, GetAttributesRequest, GetAttributesResponse, Safe;
    /// chmod, chown, utimens, truncate.
    SetAttributes = 0x0113, SetAttributesRequest, SetAttributesResponse, Once;
    /// Attributes, layout and inline contents.
    Open = 0x0114, OpenRequest, OpenResponse, Once;
    /// Any new inode.
    Create = 0x0115, CreateRequest, CreateResponse, Once;
    /// A further name.
    Link = 0x0116, LinkRequest, LinkResponse, Once;
    /// unlink and rmdir.
    Unlink = 0x0117, UnlinkRequest, UnlinkResponse, Once;
    /// rename in its three modes.
    Rename = 0x0118, RenameRequest, RenameResponse, Once;
    /// A page of a directory.
    List = 0x0119, ListRequest, ListResponse, Safe;

    /// A layout for a file that outgrows its inode record.
    AssignLayout = 0x0120, AssignLayoutRequest, AssignLayoutResponse, Once;
    /// A writer's report.
    Commit = 0x0121, CommitRequest, CommitResponse, Once;
    /// Stripe unit and width of new files.
    SetLayoutHint = 0x0122, SetLayoutHintRequest, SetLayoutHintResponse, Once;
    /// The same, asked.
    GetLayoutHint = 0x0123, GetLayoutHintRequest, GetLayoutHintResponse, Safe;
    /// Another layout for a file's bytes: what it will be.
    BeginConversion = 0x0170, BeginConversionRequest, BeginConversionResponse, Once;
    /// The file has it from now on.
    SwitchLayout = 0x0171, SwitchLayoutRequest, SwitchLayoutResponse, Once;
    /// The conversion is given up.
    EndConversion = 0x0172, EndConversionRequest, EndConversionResponse, Once;
    /// Unlinked inodes are no longer open.
    Release = 0x0124, ReleaseRequest, ReleaseResponse, Safe;
    /// Durability of all before.
    Sync = 0x0125, SyncRequest, SyncResponse, Safe;
    /// statfs.
    Space = 0x0126, SpaceRequest, SpaceResponse, Safe;

    /// Starts or stops a search for damage of the metadata, and reports.
    CheckMetadata = 0x0180, CheckMetadataRequest, CheckMetadataResponse, Safe;

    /// One extended attribute.
    GetXattr = 0x0130, GetXattrRequest, GetXattrResponse, Safe;
    /// Sets one.
    SetXattr = 0x0131, SetXattrRequest, SetXattrResponse, Once;
    /// All names.
    ListXattrs = 0x0132, ListXattrsRequest, ListXattrsResponse, Safe;
    /// Removes one.
    RemoveXattr = 0x0133, RemoveXattrRequest, RemoveXattrResponse, Once;

    /// Changes by others of what a session remembers.
    WatchChanges = 0x0140, WatchChangesRequest, WatchChangesResponse, Safe;
    /// Locks a range of a file, waits for it, lets go of it.
    SetLock = 0x0141, SetLockRequest, SetLockResponse, Safe;
    /// Asks which owner has locked a range.
    TestLock = 0x0142, TestLockRequest, TestLockResponse, Safe;
    /// A waiter for a lock gives up.
    CancelLock = 0x0143, CancelLockRequest, CancelLockResponse, Safe;
    /// All that a session has locked.
    ReclaimLocks = 0x0144, ReclaimLocksRequest, ReclaimLocksResponse, Safe;

    /// Bytes of an object.
    Read = 0x0201, ReadRequest, ReadResponse, Safe;
    /// Bytes into an object.
    Write = 0x0202, WriteRequest, WriteResponse, Safe;
    /// Cuts an object.
    TruncateObject = 0x0203, TruncateObjectRequest, TruncateObjectResponse, Safe;
    /// Makes objects durable.
    SyncObjects = 0x0204, SyncObjectsRequest, SyncObjectsResponse, Safe;
    /// Removes objects.
    RemoveObjects = 0x0205, RemoveObjectsRequest, RemoveObjectsResponse, Safe;
    /// Length and space of an object.
    StatObject = 0x0206, StatObjectRequest, StatObjectResponse, Safe;
    /// A page of a target's objects.
    ListObjects = 0x0207, ListObjectsRequest, ListObjectsResponse, Safe;
    /// A reader found damage.
    ReportDamage = 0x0208, ReportDamageRequest, ReportDamageResponse, Safe;
    /// Where a data server hands out descriptors to clients on its machine.
    LocalDoor = 0x0220, LocalDoorRequest, LocalDoorResponse, Safe;
    /// The files of a chunk; through that door only.
    OpenLocal = 0x0221, OpenLocalRequest, OpenLocalResponse, Safe;
    /// A client lends memory that it writes from; through that door only.
    LendMemory = 0x0225, LendMemoryRequest, LendMemoryResponse, Safe;
    /// Several ranges of an object.
    ReadList = 0x0222, ReadListRequest, ReadListResponse, Safe;
    /// Bytes into several ranges of an object.
    WriteList = 0x0223, WriteListRequest, WriteListResponse, Safe;
    /// Starts or stops the comparison of a target with its checksums, and reports.
    Scrub = 0x0224, ScrubRequest, ScrubResponse, Safe;

    /// Leases of members of placement groups, from one server to another.
    KeepAlive = 0x0230, KeepAliveRequest, KeepAliveResponse, Safe;
    /// Changes of which a new primary does not know whether all members have them.
    CollectUnconfirmed = 0x0231, CollectUnconfirmedRequest, CollectUnconfirmedResponse, Safe;
    /// A lagging member begins to catch up, or has everything.
    CatchUp = 0x0233, CatchUpRequest, CatchUpResponse, Safe;
    /// Hashes of the blocks of an object, from one member to another.
    CompareBlocks = 0x0234, CompareBlocksRequest, CompareBlocksResponse, Safe;
    /// A member asks its primary for what it has lost.
    RepairObject = 0x0235, RepairObjectRequest, RepairObjectResponse, Safe;
    /// A block that fails its checksum is replaced, from the primary to another member.
    RestoreBlock = 0x0236, RestoreBlockRequest, RestoreBlockResponse, Safe;
    /// All copies of an object are compared by its primary.
    CompareCopies = 0x0237, CompareCopiesRequest, CompareCopiesResponse, Safe;
    /// Notes or refuses changes of objects whose file is converted.
    FenceObjects = 0x0238, FenceObjectsRequest, FenceObjectsResponse, Safe;

    /// A range of an object becomes a hole.
    PunchObject = 0x0210, PunchObjectRequest, PunchObjectResponse, Safe;
    /// Where an object has data.
    ObjectRanges = 0x0211, ObjectRangesRequest, ObjectRangesResponse, Safe;
    /// Bytes from one object to another of the same server.
    CopyObjectRange = 0x0212, CopyObjectRangeRequest, CopyObjectRangeResponse, Safe;

    /// What a node exports.
    ListAreas = 0x0301, ListAreasRequest, ListAreasResponse, Safe;
    /// stat in an area.
    AreaStat = 0x0302, AreaStatRequest, AreaStatResponse, Safe;
    /// A page of a directory of an area.
    AreaList = 0x0303, AreaListRequest, AreaListResponse, Safe;
    /// mkdir in an area.
    AreaMakeDirectory = 0x0304, AreaMakeDirectoryRequest, AreaMakeDirectoryResponse, Safe;
    /// unlink and rmdir in an area.
    AreaRemove = 0x0305, AreaRemoveRequest, AreaRemoveResponse, Safe;
    /// rename within an area.
    AreaRename = 0x0306, AreaRenameRequest, AreaRenameResponse, Safe;
    /// Where a symbolic link of an area points.
    AreaReadLink = 0x0307, AreaReadLinkRequest, AreaReadLinkResponse, Safe;
    /// symlink in an area.
    AreaSymlink = 0x0308, AreaSymlinkRequest, AreaSymlinkResponse, Safe;
    /// chmod, utimens, truncate in an area.
    AreaSetAttributes = 0x0309, AreaSetAttributesRequest, AreaSetAttributesResponse, Safe;
    /// Space of the file system an area lies on.
    AreaSpace = 0x030A, AreaSpaceRequest, AreaSpaceResponse, Safe;
    /// Random access to a file of an area begins.
    OpenChannel = 0x0310, OpenChannelRequest, OpenChannelResponse, Safe;
    /// Bytes of a file.
    ChannelRead = 0x0311, ChannelReadRequest, ChannelReadResponse, Safe;
    /// Several ranges of a file.
    ChannelReadList = 0x0312, ChannelReadListRequest, ChannelReadListResponse, Safe;
    /// Bytes into a file.
    ChannelWrite = 0x0313, ChannelWriteRequest, ChannelWriteResponse, Safe;
    /// Makes a file durable.
    ChannelSync = 0x0314, ChannelSyncRequest, ChannelSyncResponse, Safe;
    /// Cuts or extends a file.
    ChannelTruncate = 0x0315, ChannelTruncateRequest, ChannelTruncateResponse, Safe;
    /// stat of the file.
    ChannelStat = 0x0316, ChannelStatRequest, ChannelStatResponse, Safe;
    /// The access ends.
    CloseChannel = 0x0317, CloseChannelRequest, CloseChannelResponse, Safe;
    /// A client keeps its channels.
    RenewChannels = 0x0318, RenewChannelsRequest, RenewChannelsResponse, Safe;
    /// A copy of a file to this node begins or goes on.
    CopyBegin = 0x0320, CopyBeginRequest, CopyBeginResponse, Safe;
    /// Bytes of a copy, by the method `rpc`.
    CopyBlock = 0x0321, CopyBlockRequest, CopyBlockResponse, Safe;
    /// The copy becomes durable and visible.
    CopyEnd = 0x0322, CopyEndRequest, CopyEndResponse, Safe;
    /// The copy is given up.
    CopyAbort = 0x0323, CopyAbortRequest, CopyAbortResponse, Safe;
    /// A small file in one request.
    CopyWhole = 0x0324, CopyWholeRequest, CopyWholeResponse, Safe;
    /// A job for this node's queue.
    SubmitJob = 0x0328, SubmitJobRequest, SubmitJobResponse, Safe;
    /// The jobs of this node.
    ListJobs = 0x0329, ListJobsRequest, ListJobsResponse, Safe;
    /// Pause, resume, cancel, forget.
    ControlJob = 0x032A, ControlJobRequest, ControlJobResponse, Safe;
    /// Files of a job that failed.
    ListJobFailures = 0x032B, ListJobFailuresRequest, ListJobFailuresResponse, Safe;
    /// Where a probe's bytes may be sent.
    OpenProbe = 0x0331, OpenProbeRequest, OpenProbeResponse, Safe;
    /// Many small files of a job in one request, synced together.
    CopyBatch = 0x0350, CopyBatchRequest, CopyBatchResponse, Safe;
    /// A node sends to where a probe was opened, and says how fast that went.
    RunProbe = 0x0351, RunProbeRequest, RunProbeResponse, Safe;
    /// A further name in an area.
    AreaLink = 0x0352, AreaLinkRequest, AreaLinkResponse, Safe;
    /// One extended attribute of a path in an area.
    AreaGetXattr = 0x0353, AreaGetXattrRequest, AreaGetXattrResponse, Safe;
    /// Sets one.
    AreaSetXattr = 0x0354, AreaSetXattrRequest, AreaSetXattrResponse, Safe;
    /// All names.
    AreaListXattrs = 0x0355, AreaListXattrsRequest, AreaListXattrsResponse, Safe;
    /// Removes one.
    AreaRemoveXattr = 0x0356, AreaRemoveXattrRequest, AreaRemoveXattrResponse, Safe;
}

/// Beyond the highest number of a method.
const NUMBERS_END: usize = 0x0400;

/// The place in [`Method::ALL`] of the method with each number.
static PLACES: [u8; NUMBERS_END] = {
    let mut places = [0; NUMBERS_END];
    let mut place = 0;
    while place < Method::ALL.len() {
        places[Method::ALL[place] as usize] = place as u8;
        place += 1;
    }
    places
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_knows_its_place() {
        for (place, method) in Method::ALL.iter().enumerate() {
            assert_eq!(method.index(), place);
        }
    }

    #[test]
    fn every_method_number_is_found_again() {
        for &method in Method::ALL {
            assert_eq!(Method::from_number(method.number()), Some(method));
        }
        assert_eq!(Method::from_number(0xFFFF), None);
    }
}
