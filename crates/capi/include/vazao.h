/*
 * libvazao: the volume of a Vazão cluster, for programs in C.
 *
 *     cc demo.c $(pkg-config --cflags --libs vazao)
 *
 * A first program is in docs/library-c.md, others are among the examples: walk.c, copy.c, strided.c and
 * channels.c.
 *
 * Generated from crates/capi/src: change it there.
 *
 * RESULTS
 * A call returns 0, or what it counts, or a negative errno: -ENOENT. Where it fails and `error` is not NULL, *error
 * receives an error of this very call: its message names the thing, the cause and what to do about it. It is freed by
 * vazao_error_free(). Where it succeeds *error becomes NULL. What *error was before is overwritten, never freed.
 * Handles and answers are only filled in by calls that succeed.
 *
 * PATHS
 * Paths begin at the root of the volume: "/a/b", or "vz:/a/b" as the command has it. Names are bytes, in no encoding.
 * Symbolic links are followed within the volume, at the end of a path too, where a function does not say otherwise.
 * "n1:/area/path" is a file or directory in an area of a node, which does the work itself, on its own disk; calls for the
 * volume alone refuse such a path. There a link at the end of a path is followed, within the area, by vazao_stat(),
 * vazao_open() and vazao_directory_open() alone.
 *
 * PERMISSIONS
 * Permission bits are stored and shown, and mounts enforce them. A program that has the cluster's key may do everything.
 *
 * THREADS
 * Every function may be called from any thread, with the same handles too. There is no global state: nothing depends on
 * the thread that calls, on errno or on the locale. The library installs no signal handlers and raises no SIGPIPE.
 * Only to free a handle while another thread uses it is not allowed.
 *
 * HANDLES
 * A NULL handle is EINVAL. A file that was closed, or whose connection was, is EBADF until it is freed.
 * Undefined is, as anywhere in C: to use or free a handle or an error that was freed, or a pointer that is none, and to
 * give the length of a buffer that is longer than the buffer.
 *
 * FORK
 * A child process has no part in the connections of its parent: calls on their handles fail with EBADF, and freeing
 * them there changes nothing for the parent. The child connects for itself.
 */


#ifndef VAZAO_H
#define VAZAO_H

#include <stddef.h>
#include <stdint.h>

// For vazao_stat() and calls about extended attributes: a symbolic link at the end of the path is meant, not what it
// leads to.
#define VAZAO_NO_FOLLOW 1

// For vazao_rename(): fails with EEXIST where the new name is taken.
#define VAZAO_RENAME_NO_REPLACE 1

// For vazao_rename(): swaps what the two names lead to.
#define VAZAO_RENAME_EXCHANGE 2

// For vazao_setxattr(): fails with EEXIST where there is such an attribute.
#define VAZAO_XATTR_CREATE 2

// For vazao_setxattr(): fails with ENODATA where there is no such attribute.
#define VAZAO_XATTR_REPLACE 4

// For vazao_directory_open(): entries come with their attributes, at little more cost than without.
#define VAZAO_WITH_ATTRIBUTES 1

// For vazao_seek(): something that may not be zeros.
#define VAZAO_SEEK_DATA 1

// For vazao_seek(): a hole; the end of the file counts as one.
#define VAZAO_SEEK_HOLE 2

// For vazao_lock(): others may have such a lock, too. The file has to be open for reading.
#define VAZAO_LOCK_SHARED 1

// For vazao_lock(): no other owner has a lock there. The file has to be open for writing.
#define VAZAO_LOCK_EXCLUSIVE 2

// For vazao_lock(): waits as long as it takes.
#define VAZAO_WAIT UINT32_MAX

// For vazao_copy(): directories with all that is in them.
#define VAZAO_COPY_RECURSIVE 1

// For vazao_copy(): owners, permissions with set-id bits, and times are kept.
#define VAZAO_COPY_PRESERVE 2

// For vazao_copy(): what an earlier copy has brought is not sent again.
#define VAZAO_COPY_RESUME 4

// For vazao_copy(): each file is read from the destination's disk again at its end, and compared.
#define VAZAO_COPY_CHECKSUM 8

// For vazao_copy(): all files are written over.
#define VAZAO_COPY_OVER_ALL 0

// For vazao_copy(): files that are there stay as they are.
#define VAZAO_COPY_OVER_NONE 1

// For vazao_copy(): files that are there are written over by newer ones.
#define VAZAO_COPY_OVER_OLDER 2

// For vazao_copy(): files that are there are written over where size or time are different.
#define VAZAO_COPY_OVER_DIFFERENT 3

// Why a call has failed. Freed by `vazao_error_free`.
typedef struct vazao_error vazao_error;

// A session with the volume of one cluster. Usable from any number of threads.
typedef struct vazao_connection vazao_connection;

// A directory that is being listed, page by page. Several threads that use one share its entries among them.
typedef struct vazao_directory vazao_directory;

// An open file of the volume, or of an area of a node. Usable from any number of threads.
typedef struct vazao_file vazao_file;

// A stretch of work whose limit is asked for.
typedef struct vazao_watch vazao_watch;

// How a connection behaves. A structure of zeros stands for the cluster's configuration and the defaults.
typedef struct {
    // How long one call may take, in milliseconds, repetitions included; 0: as configured, or 30000.
    uint32_t deadline_ms;
    // Connections to each server; 0: as configured, or 8.
    uint32_t connections_max;
    // Bytes written but not yet acknowledged, over all files; 0: as configured, or 64 MiB.
    uint64_t dirty_bytes_max;
    // Bytes read ahead of one reader; 0: as configured, or 32 MiB.
    uint64_t read_ahead_bytes_max;
    // What `vazao top` and the logs call this program; NULL: its process and host.
    const char *name;
    // The zone that this machine is in, as `zone` of client.toml names it; NULL: as configured.
    const char *zone;
    // Zero.
    uint64_t reserved[7];
} vazao_options;

// Space of the volume.
typedef struct {
    // Sum over all targets that serve.
    uint64_t capacity_bytes;
    // What may still be written.
    uint64_t available_bytes;
    // In use on the targets' file systems, by any program.
    uint64_t used_bytes;
    // Files, directories and links.
    uint64_t inodes;
    // Zero.
    uint64_t reserved[4];
} vazao_space;

// A point in time since the beginning of 1970, UTC.
typedef struct {
    // Whole seconds, negative before 1970.
    int64_t seconds;
    // After `seconds`, below 1000000000.
    int64_t nanoseconds;
} vazao_time;

// What stat(2) shows.
typedef struct {
    // Its number in the volume.
    uint64_t inode;
    // Length in bytes.
    uint64_t size_bytes;
    // Bytes of storage in use, as far as known.
    uint64_t allocated_bytes;
    // Type and permissions, as `st_mode`: S_ISDIR() and its like apply.
    uint32_t mode;
    // Names of it; for a directory 2 and its subdirectories.
    uint32_t link_count;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Last read.
    vazao_time accessed;
    // Last change of contents.
    vazao_time modified;
    // Last change of contents or attributes.
    vazao_time changed;
    // Grows with every change of the contents.
    uint64_t version;
    // Zero.
    uint64_t reserved[4];
} vazao_attributes;

// One name in a directory.
typedef struct {
    // The number of what it names.
    uint64_t inode;
    // The type alone, as in `st_mode`: S_ISDIR() and its like apply.
    uint32_t mode_type;
    // Bytes of the name without its NUL.
    uint32_t name_bytes;
    // The name, with a NUL behind it. Any bytes but `/` and NUL.
    char name[256];
    // Its attributes where VAZAO_WITH_ATTRIBUTES was given; zeros otherwise.
    vazao_attributes attributes;
} vazao_entry;

// A range of a file and the memory for it, of vazao_read_list() and vazao_write_list().
typedef struct {
    // Where it begins in the file.
    uint64_t offset;
    // Its bytes.
    void *buffer;
    // How many.
    size_t buffer_bytes;
    // Receives how many of them were read or written.
    size_t done_bytes;
} vazao_range;

// Equal ranges at equal distances.
typedef struct {
    // Where the first one begins.
    uint64_t offset;
    // Bytes of each.
    size_t range_bytes;
    // From the beginning of one to that of the next.
    uint64_t stride_bytes;
    // How many.
    size_t range_count;
} vazao_strided;

// How a file is striped over targets.
typedef struct {
    // Bytes that go to one target before the next one's turn; 0 where that is not what the distribution is about.
    uint64_t stripe_unit_bytes;
    // Number of targets; 0 while the contents of a small file are with its metadata.
    uint32_t width;
    // 1: simple stripes, 2: strips of own sizes, 3: groups of targets in turn, 4: all on the writer's machine.
    uint32_t distribution;
    // Zero.
    uint64_t reserved[4];
} vazao_layout;

// A lock that another owner has.
typedef struct {
    // Its first byte.
    uint64_t offset;
    // Its bytes; 0: to the end, however far that moves.
    uint64_t bytes;
    // VAZAO_LOCK_SHARED or VAZAO_LOCK_EXCLUSIVE.
    uint32_t mode;
    // Its process, where that is this one; 0: one of another client.
    uint32_t process;
    // Zero.
    uint64_t reserved[4];
} vazao_lock_info;

// What limited a stretch of work.
typedef struct {
    // "disk", "network", "round_trip", "cpu", "bandwidth_limit", "lock", "no_answer", "caller" (the program itself),
    // "idle" or "unknown".
    char resource[32];
    // The node where it is.
    char place[256];
    // One line for people, cut where it is longer.
    char text[512];
    // The share of its ceiling, 0 to 1; negative where the ceiling is not known.
    double share;
    // How sure that is, 0 to 1.
    double score;
    // Zero.
    uint64_t reserved[4];
} vazao_limit;

// How far a copy is.
typedef struct {
    // Files that it found so far; all of them once it has listed them.
    uint64_t files;
    // Files that are there, or were already.
    uint64_t files_done;
    // Files that could not be copied.
    uint64_t files_failed;
    // Bytes of all files.
    uint64_t bytes;
    // Bytes that are there.
    uint64_t bytes_done;
    // Bytes a second, smoothed.
    uint64_t bytes_per_second;
    // Milliseconds until the end; UINT64_MAX: not known.
    uint64_t left_ms;
    // Zero.
    uint64_t reserved[5];
} vazao_copy_progress;

// What vazao_copy() is to do. A structure of zeros copies one file as fast as it can, over what is there.
typedef struct {
    // VAZAO_COPY_RECURSIVE, VAZAO_COPY_PRESERVE, VAZAO_COPY_RESUME, VAZAO_COPY_CHECKSUM, or 0.
    uint32_t flags;
    // Which files that are there already are written over: VAZAO_COPY_OVER_ALL, _OVER_NONE, _OVER_OLDER or
    // _OVER_DIFFERENT.
    uint32_t over;
    // How long it may take, in milliseconds; 0: as long as it takes.
    uint64_t deadline_ms;
    // How much it may move in a second; 0: no limit.
    uint64_t bytes_per_second_max;
    // "auto", "blocking", "nonblocking", "streams:4", "rpc" or "ftp"; NULL: "auto".
    const char *method;
    // Is told how far it is, four times a second and once it is over, by the thread that called vazao_copy(). What it
    // returns other than 0 cancels the copy. NULL: it is not shown.
    int (*watcher)(const vazao_copy_progress *progress, void *context);
    // What the watcher is given.
    void *context;
    // Zero.
    uint64_t reserved[8];
} vazao_copy_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as "0.1.0".
const char *vazao_version(void);

// The number of an error, positive, as in <errno.h>; 0 for NULL.
int vazao_error_errno(const vazao_error *error);

// What happened to what, why, and what to do about it: one line. It lives as long as the error. "" for NULL.
const char *vazao_error_message(const vazao_error *error);

// Frees an error. NULL is allowed.
void vazao_error_free(vazao_error *error);

// Connects to a cluster.
//
// cluster_file: its client.toml. NULL: the file that the command `vazao` takes, which is $VAZAO_CLUSTER, or else
// ~/.config/vazao/client.toml, or else /etc/vazao/client.toml.
// options: NULL for what that file and the defaults say.
// connection: receives the connection, to be closed by vazao_disconnect() and freed by vazao_connection_free(); NULL
// where it fails.
//
// Fails within 5 seconds where there is no cluster.
int vazao_connect(const char *cluster_file,
                  const vazao_options *options,
                  vazao_connection **connection,
                  vazao_error **error);

// Ends the session: writes out what is written to its files, and closes them.
//
// Later calls on the connection, its files and its directories fail with EBADF; their handles are to be freed all the
// same. Fails where something could not be written; closed it is in any case.
int vazao_disconnect(vazao_connection *connection,
                     vazao_error **error);

// Frees a connection, and closes it before where that has not been done: what goes wrong then is told to no caller.
// NULL is allowed. In a child process (see fork above) it only lets go of the handle.
void vazao_connection_free(vazao_connection *connection);

// Ends all waits for servers, from any thread: calls under way fail with ECANCELED, and so do later ones. For a
// program that has to end whatever its servers do. What servers have not acknowledged is lost.
int vazao_hang_up(vazao_connection *connection,
                  vazao_error **error);

// The space of the volume, as statvfs(3) would tell it.
int vazao_volume_space(vazao_connection *connection, vazao_space *space, vazao_error **error);

// Makes durable all changes of names and attributes that were answered before.
int vazao_sync(vazao_connection *connection, vazao_error **error);

// What a path leads to, as stat(2), or with VAZAO_NO_FOLLOW as lstat(2).
int vazao_stat(vazao_connection *connection,
               const char *path,
               uint32_t flags,
               vazao_attributes *attributes,
               vazao_error **error);

// Makes a directory of this process's effective user. The process's umask does not apply. In an area it is the
// daemon's user's, or the area's owner's.
int vazao_mkdir(vazao_connection *connection,
                const char *path,
                uint32_t mode,
                vazao_error **error);

// Removes an empty directory.
int vazao_rmdir(vazao_connection *connection, const char *path, vazao_error **error);

// Removes a name that is not a directory's. A file that is open somewhere lives on until its last close.
int vazao_unlink(vazao_connection *connection, const char *path, vazao_error **error);

// Moves a name, in one transaction, over a new name that is there already. EXDEV: out of the volume, or of its area.
//
// flags: 0, VAZAO_RENAME_NO_REPLACE or VAZAO_RENAME_EXCHANGE.
int vazao_rename(vazao_connection *connection,
                 const char *path,
                 const char *new_path,
                 uint32_t flags,
                 vazao_error **error);

// Gives a file a further name. EXDEV: as of vazao_rename().
int vazao_link(vazao_connection *connection, const char *path, const char *new_path, vazao_error **error);

// Makes a symbolic link at `path` that leads to `target`, any bytes.
int vazao_symlink(vazao_connection *connection, const char *target, const char *path, vazao_error **error);

// Where a symbolic link leads: fills the buffer, with a NUL at the end, and returns the bytes before the NUL. Fails
// with ERANGE where it does not fit; 4096 bytes are always enough.
int64_t vazao_readlink(vazao_connection *connection,
                       const char *path,
                       char *buffer,
                       size_t buffer_bytes,
                       vazao_error **error);

// Sets the permission bits of what a path leads to.
int vazao_chmod(vazao_connection *connection, const char *path, uint32_t mode, vazao_error **error);

// Sets owner and group of what a path leads to; 4294967295, which is (uid_t)-1, leaves one as it is. In an area
// EOPNOTSUPP: its files belong to the daemon's user, or to the area's owner.
int vazao_chown(vazao_connection *connection,
                const char *path,
                uint32_t uid,
                uint32_t gid,
                vazao_error **error);

// Cuts a file, or extends it with zeros that take no space.
int vazao_truncate(vazao_connection *connection, const char *path, uint64_t size_bytes, vazao_error **error);

// Sets the times of the last read and of the last change of contents; NULL: now, in an area by this machine's clock.
int vazao_utimes(vazao_connection *connection,
                 const char *path,
                 const vazao_time *accessed,
                 const vazao_time *modified,
                 vazao_error **error);

// Reads an extended attribute, as getxattr(2): fills the buffer with its value and returns the value's bytes, without
// a NUL. A buffer of 0 bytes asks how many those are. ERANGE: it does not fit; 65536 bytes are always enough.
// ENODATA: there is none of that name.
//
// name: in the volume "user.NAME", "trusted.NAME", "security.NAME", and the two of access control lists; any other is
// EOPNOTSUPP. In an area whatever its file system has.
// flags: 0 or VAZAO_NO_FOLLOW, which is always so in an area.
int64_t vazao_getxattr(vazao_connection *connection,
                       const char *path,
                       const char *name,
                       void *buffer,
                       size_t buffer_bytes,
                       uint32_t flags,
                       vazao_error **error);

// Sets an extended attribute to any bytes, 65536 at most, as setxattr(2).
//
// name: as of vazao_getxattr(), 255 bytes at most.
// flags: 0, or of VAZAO_NO_FOLLOW and one of VAZAO_XATTR_CREATE and VAZAO_XATTR_REPLACE.
int vazao_setxattr(vazao_connection *connection,
                   const char *path,
                   const char *name,
                   const void *value,
                   size_t value_bytes,
                   uint32_t flags,
                   vazao_error **error);

// Lists extended attributes, as listxattr(2): fills the buffer with their names, each with a NUL behind it, and
// returns the bytes of all. A buffer of 0 bytes asks how many those are. ERANGE: they do not fit; 65536 bytes are
// always enough.
//
// flags: as of vazao_getxattr().
int64_t vazao_listxattr(vazao_connection *connection,
                        const char *path,
                        char *buffer,
                        size_t buffer_bytes,
                        uint32_t flags,
                        vazao_error **error);

// Removes an extended attribute. ENODATA: there is none of that name.
//
// flags: as of vazao_getxattr().
int vazao_removexattr(vazao_connection *connection,
                      const char *path,
                      const char *name,
                      uint32_t flags,
                      vazao_error **error);

// Begins to list a directory.
//
// path: a directory of the volume or of an area, or "n1:/" for the areas of a node, which come as directories.
// flags: 0 or VAZAO_WITH_ATTRIBUTES.
// directory: receives the listing, to be freed by vazao_directory_free(); NULL where it fails.
int vazao_directory_open(vazao_connection *connection,
                         const char *path,
                         uint32_t flags,
                         vazao_directory **directory,
                         vazao_error **error);

// The next entry, in no particular order and without "." and "..": 1, or 0 behind the last one. Names that are there
// all the time come once; those that come or go meanwhile may or may not. After an error it can be called again.
int vazao_directory_next(vazao_directory *directory,
                         vazao_entry *entry,
                         vazao_error **error);

// Frees a listing. NULL is allowed.
void vazao_directory_free(vazao_directory *directory);

// Opens a regular file as open(2) does.
//
// path: in the volume, or in an area of a node: "n1:/area/path". The node reads and writes such a file itself, on its
// own disk: only vazao_pread(), vazao_pwrite(), vazao_flush(), vazao_fsync(), vazao_ftruncate() and vazao_fstat() are
// for it, the others are EOPNOTSUPP. A channel that its node has lost by a restart is opened again by itself.
// flags: of <fcntl.h>: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL and O_TRUNC; O_CLOEXEC and O_LARGEFILE are
// ignored, and any other is EINVAL. To append, write with vazao_append(). O_CREAT makes nothing at the end of a link.
// mode: permissions of a new file, which belongs to the effective user; the process's umask does not apply.
// file: receives the file, to be closed by vazao_file_close() and freed by vazao_file_free(); NULL where it fails.
int vazao_open(vazao_connection *connection,
               const char *path,
               int flags,
               uint32_t mode,
               vazao_file **file,
               vazao_error **error);

// Writes out what is written, tells other clients of it, and closes. Fails where something written earlier could not
// be stored; closed it is in any case, and later calls on it fail with EBADF. Calls of other threads are waited for.
int vazao_file_close(vazao_file *file,
                     vazao_error **error);

// Frees a file, and closes it before where that has not been done: what could not be stored is told to no caller then.
// NULL is allowed. In a child process (see fork above) it only lets go of the handle.
void vazao_file_free(vazao_file *file);

// Reads at an offset: fills the buffer and returns its length; less only where the file ends, and 0 at its end. A read
// sees what this connection has written before.
int64_t vazao_pread(vazao_file *file,
                    void *buffer,
                    size_t buffer_bytes,
                    uint64_t offset,
                    vazao_error **error);

// Writes all bytes at an offset, and returns their number. They are copied: the buffer is the caller's again. Servers
// may have them later; what then fails is told by the next write, vazao_flush(), vazao_fsync() or vazao_file_close().
int64_t vazao_pwrite(vazao_file *file,
                     const void *buffer,
                     size_t buffer_bytes,
                     uint64_t offset,
                     vazao_error **error);

// Writes all bytes at the end of the file, wherever others have moved it, and returns the offset that they were
// written at. Programs that append to one file lose nothing of each other.
int64_t vazao_append(vazao_file *file,
                     const void *buffer,
                     size_t buffer_bytes,
                     vazao_error **error);

// Writes out what is written: clients that open the file afterwards see it. Fails as long as something that was
// written could not be stored, and has not been written again or cut off.
int vazao_flush(vazao_file *file,
                vazao_error **error);

// The same, and all of it survives the loss of power of all servers.
int vazao_fsync(vazao_file *file, vazao_error **error);

// Cuts the file, or extends it with zeros that take no space.
int vazao_ftruncate(vazao_file *file, uint64_t size_bytes, vazao_error **error);

// What the file is, with what this connection has written.
int vazao_fstat(vazao_file *file, vazao_attributes *attributes, vazao_error **error);

// Reads many ranges into a buffer each, with one request for each server as far as they are small. Sets `done_bytes`
// of each, which is less than its buffer has only where the file ends, and returns their sum.
int64_t vazao_read_list(vazao_file *file,
                        vazao_range *ranges,
                        size_t range_count,
                        vazao_error **error);

// Writes many ranges from a buffer each, with one request for each server as far as they are small; where they overlap
// in the file the later one counts. Sets `done_bytes` of each, and returns their sum.
int64_t vazao_write_list(vazao_file *file,
                         vazao_range *ranges,
                         size_t range_count,
                         vazao_error **error);

// Reads equal ranges at equal distances into one buffer, one behind the other: a column of a matrix. The buffer has
// their bytes in all. Returns how many bytes there were: fewer only where the file ends, and zeros stand for the
// others.
int64_t vazao_read_strided(vazao_file *file,
                           const vazao_strided *ranges,
                           void *buffer,
                           size_t buffer_bytes,
                           vazao_error **error);

// Writes equal ranges at equal distances from one buffer, which has their bytes in all. Returns how many that are.
int64_t vazao_write_strided(vazao_file *file,
                            const vazao_strided *ranges,
                            const void *buffer,
                            size_t buffer_bytes,
                            vazao_error **error);

// Looks for data, or for a hole, at or behind an offset: 1 and its offset, or 0 where there is none before the end.
//
// what: VAZAO_SEEK_DATA or VAZAO_SEEK_HOLE.
int vazao_seek(vazao_file *file,
               int what,
               uint64_t offset,
               uint64_t *found_offset,
               vazao_error **error);

// Makes a range a hole, as far as it lies within the file: it reads as zeros and takes no space.
int vazao_make_hole(vazao_file *file, uint64_t offset, uint64_t bytes, vazao_error **error);

// How a file is striped, or how files created in a directory will be.
int vazao_get_layout(vazao_connection *connection,
                     const char *path,
                     vazao_layout *layout,
                     vazao_error **error);

// Stripes files that are created in a directory from now on, or a file without data, in simple stripes. 0 stands for
// what the directory above has. `vazao layout` knows other distributions, and converts files with data.
int vazao_set_layout(vazao_connection *connection,
                     const char *path,
                     uint64_t stripe_unit_bytes,
                     uint32_t width,
                     vazao_error **error);

// Locks bytes of a file of the volume, as F_OFD_SETLKW of fcntl(2), and against such locks of mounts and of other
// programs. The owner is the open file: two of one process exclude each other, and any thread may let go. What was
// locked through this file before changes its mode. What others wrote under their locks is seen afterwards. Locks go
// with vazao_unlock(), when the file is closed or freed, and with the connection.
//
// mode: VAZAO_LOCK_SHARED or VAZAO_LOCK_EXCLUSIVE. bytes: 0: to the end, however far that moves.
// wait_ms: for how long others are waited for; 0: not at all; VAZAO_WAIT. Signals do not end the wait,
// vazao_file_close() of another thread does.
//
// EAGAIN: another one has it. EDEADLK: it waits for this very file. ENOLCK: too many locks. EOPNOTSUPP: in an area.
// Where this program was cut off for so long that another one got its lock, every call on the file is EIO from then
// on, until it is closed.
int vazao_lock(vazao_file *file,
               uint32_t mode,
               uint64_t offset,
               uint64_t bytes,
               uint32_t wait_ms,
               vazao_error **error);

// Writes out what is written, as vazao_flush(), and lets go of bytes, be they locked or not. It lets go of them also
// where something that was written could not be stored, which it tells.
int vazao_unlock(vazao_file *file,
                 uint64_t offset,
                 uint64_t bytes,
                 vazao_error **error);

// Looks whether a lock of another owner is in the way of one: 1 and that lock, or 0, where vazao_lock() might succeed.
int vazao_lock_test(vazao_file *file,
                    uint32_t mode,
                    uint64_t offset,
                    uint64_t bytes,
                    vazao_lock_info *held,
                    vazao_error **error);

// Begins a stretch of work that vazao_watch_limit() will judge. It costs a request to each node at both ends, and a
// thread in between.
//
// watch: receives it, to be freed by vazao_watch_free(); NULL where it fails.
int vazao_watch_begin(vazao_connection *connection,
                      vazao_watch **watch,
                      vazao_error **error);

// What limited this program's work on the connection since the watch began: a disk, a link, round trips, a
// processor, or the program itself. The watch goes on.
int vazao_watch_limit(vazao_watch *watch, vazao_limit *limit, vazao_error **error);

// Frees a watch. NULL is allowed.
void vazao_watch_free(vazao_watch *watch);

// Has nodes copy files to one another, or between an area and the volume, and waits until they have. The bytes do not
// pass through this program. The copy goes on while nodes are started again, and is seen by `vazao jobs`.
//
// sources: "n1:/area/path" or, into an area, a path in the volume; source_count of them.
// destination: the file it is to be called, or the directory it goes into: "n2:/area/path", or a path in the volume.
// options: NULL for one of zeros.
// limit: receives what limited it; NULL is allowed.
//
// Fails with ECANCELED where the watcher said so, with ETIMEDOUT where it was not over by its deadline: it is
// cancelled then; with EIO where files could not be copied, of which the message names the first, and the others are
// there.
int vazao_copy(vazao_connection *connection,
               const char *const *sources,
               size_t source_count,
               const char *destination,
               const vazao_copy_options *options,
               vazao_limit *limit,
               vazao_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VAZAO_H */
