/* Each function of the library against a cluster, and what is wrong to give it. */
#include "check.h"

static void names(vazao_connection *volume)
{
    vazao_error *error = NULL;
    vazao_attributes attributes;
    vazao_time then = {1000000000, 5};
    vazao_space space;
    char target[16];
    vazao_file *file;

    CHECK(vazao_mkdir(volume, "/t", 0750, &error) == 0 && error == NULL);
    FAILS(vazao_mkdir(volume, "/t", 0750, &error), EEXIST, "vz:/t: ");
    FAILS(vazao_mkdir(volume, "/none/t", 0750, &error), ENOENT, "vz:/none");
    CHECK(vazao_stat(volume, "/t", 0, &attributes, &error) == 0);
    CHECK(attributes.mode == (S_IFDIR | 0750) && attributes.uid == geteuid() && attributes.gid == getegid());
    file = open_file(volume, "vz:/t/f", O_WRONLY | O_CREAT | O_EXCL);
    CHECK(vazao_pwrite(file, "12345", 5, 0, NULL) == 5);
    CHECK(vazao_file_close(file, &error) == 0);
    vazao_file_free(file);
    CHECK(vazao_stat(volume, "/t/f", 0, &attributes, &error) == 0);
    CHECK(attributes.mode == (S_IFREG | 0640) && attributes.size_bytes == 5 && attributes.link_count == 1);
    CHECK(vazao_chmod(volume, "/t/f", 0604, &error) == 0 && vazao_chown(volume, "/t/f", 17, -1, &error) == 0);
    CHECK(vazao_truncate(volume, "/t/f", 7, &error) == 0 && vazao_utimes(volume, "/t/f", NULL, &then, &error) == 0);
    CHECK(vazao_stat(volume, "/t/f", 0, &attributes, &error) == 0);
    CHECK(attributes.mode == (S_IFREG | 0604) && attributes.uid == 17 && attributes.gid == getegid());
    CHECK(attributes.size_bytes == 7 && attributes.modified.seconds == 1000000000);
    CHECK(attributes.modified.nanoseconds == 5 && attributes.accessed.seconds > 1000000000);
    then.nanoseconds = 1000000000;
    FAILS(vazao_utimes(volume, "/t/f", NULL, &then, &error), EINVAL, "1000000000 nanoseconds");

    CHECK(vazao_link(volume, "/t/f", "/t/g", &error) == 0 && vazao_symlink(volume, "f", "/t/s", &error) == 0);
    CHECK(vazao_stat(volume, "/t/s", 0, &attributes, &error) == 0 && attributes.link_count == 2);
    CHECK(vazao_stat(volume, "/t/s", VAZAO_NO_FOLLOW, &attributes, &error) == 0 && S_ISLNK(attributes.mode));
    FAILS(vazao_stat(volume, "/t/s", 2, &attributes, &error), EINVAL, "unknown flags 0x2");
    CHECK(vazao_readlink(volume, "/t/s", target, 2, &error) == 1 && strcmp(target, "f") == 0);
    FAILS(vazao_readlink(volume, "/t/s", target, 1, &error), ERANGE, "1 bytes");
    FAILS(vazao_readlink(volume, "/t/s", target, 0, &error), ERANGE, "0 bytes");
    FAILS(vazao_readlink(volume, "/t/f", target, 16, &error), EINVAL, "vz:/t/f");
    file = open_file(volume, "/t/s", O_RDONLY | O_CREAT);
    CHECK(vazao_fstat(file, &attributes, &error) == 0 && attributes.size_bytes == 7);
    vazao_file_free(file);

    FAILS(vazao_rename(volume, "/t/g", "/t/f", VAZAO_RENAME_NO_REPLACE, &error), EEXIST, "vz:/t/");
    FAILS(vazao_rename(volume, "/t/g", "/t/h", 8, &error), EINVAL, "0x8");
    CHECK(vazao_rename(volume, "/t/g", "/t/h", 0, &error) == 0);
    CHECK(vazao_rename(volume, "/t/h", "/t/s", VAZAO_RENAME_EXCHANGE, &error) == 0);
    CHECK(vazao_stat(volume, "/t/s", VAZAO_NO_FOLLOW, &attributes, &error) == 0 && S_ISREG(attributes.mode));
    FAILS(vazao_rmdir(volume, "/t", &error), ENOTEMPTY, "vz:/t: ");
    FAILS(vazao_unlink(volume, "/t", &error), EISDIR, "vz:/t: ");
    FAILS(vazao_unlink(volume, "/", &error), EINVAL, "root");
    CHECK(vazao_unlink(volume, "/t/s", &error) == 0 && vazao_unlink(volume, "/t/h", &error) == 0);
    CHECK(vazao_unlink(volume, "/t/f", &error) == 0 && vazao_rmdir(volume, "/t", &error) == 0);
    CHECK(vazao_volume_space(volume, &space, &error) == 0 && space.capacity_bytes >= space.available_bytes);
    CHECK(vazao_sync(volume, &error) == 0);
}

static void listings(vazao_connection *volume)
{
    vazao_error *error = NULL;
    vazao_directory *directory = NULL;
    vazao_entry entry;
    char path[300];
    char seen[1100] = {0};
    char longest[256];
    int more, number, count = 0, longest_seen = 0;

    memset(longest, 'n', 255);
    longest[255] = 0;
    vazao_mkdir(volume, "/l", 0755, NULL);
    for (number = 0; number < 1100; number++) {
        snprintf(path, sizeof path, "/l/%d", number);
        if (vazao_symlink(volume, "x", path, NULL) != 0)
            break;
    }
    snprintf(path, sizeof path, "/l/%s", longest);
    CHECK(number == 1100 && vazao_mkdir(volume, path, 0711, &error) == 0);
    CHECK(vazao_directory_open(volume, "/l", 0, &directory, &error) == 0);
    while ((more = vazao_directory_next(directory, &entry, &error)) > 0) {
        count += 1;
        if (S_ISLNK(entry.mode_type) && atoi(entry.name) < 1100 && entry.attributes.mode == 0)
            seen[atoi(entry.name)] += 1;
        else
            longest_seen += S_ISDIR(entry.mode_type) && strcmp(entry.name, longest) == 0 && entry.name_bytes == 255;
    }
    CHECK(more == 0 && error == NULL && count == 1101 && longest_seen == 1);
    for (number = 0; number < 1100 && seen[number] == 1; number++)
        ;
    CHECK(number == 1100);
    CHECK(vazao_directory_next(directory, &entry, &error) == 0);
    vazao_directory_free(directory);
    CHECK(vazao_directory_open(volume, "/", VAZAO_WITH_ATTRIBUTES, &directory, &error) == 0);
    while ((more = vazao_directory_next(directory, &entry, &error)) > 0 && strcmp(entry.name, "l") != 0)
        ;
    CHECK(more == 1 && entry.attributes.mode == (S_IFDIR | 0755) && entry.attributes.inode == entry.inode);
    FAILS(vazao_directory_next(directory, NULL, &error), EINVAL, "`entry` is NULL");
    vazao_directory_free(directory);
    FAILS(vazao_directory_open(volume, "/l/1", 0, &directory, &error), ENOENT, "vz:/l/1");
    CHECK(directory == NULL);
    FAILS(vazao_directory_open(volume, "/data", 0, &directory, &error), ENOTDIR, "vz:/data");
    FAILS(vazao_directory_open(volume, "/l", 2, &directory, &error), EINVAL, "unknown flags");
}

static void files(vazao_connection *volume)
{
    vazao_error *error = NULL;
    vazao_attributes attributes;
    size_t bytes = 3000000, at;
    char *out = malloc(bytes), *in = malloc(bytes);
    vazao_file *file = open_file(volume, "/file", O_RDWR | O_CREAT | O_TRUNC);
    vazao_file *reader;

    for (at = 0; at < bytes; at++)
        out[at] = (char)(at * 7 + at / 251);
    CHECK(vazao_pwrite(file, out, bytes, 10, &error) == (int64_t)bytes && error == NULL);
    CHECK(vazao_pread(file, in, bytes, 10, &error) == (int64_t)bytes && memcmp(in, out, bytes) == 0);
    CHECK(vazao_pread(file, in, 20, 0, &error) == 20 && in[0] == 0 && memcmp(in + 10, out, 10) == 0);
    CHECK(vazao_pread(file, in, 20, bytes + 5, &error) == 5 && vazao_pread(file, in, 20, bytes + 10, &error) == 0);
    CHECK(vazao_pread(file, NULL, 0, 0, &error) == 0 && vazao_pwrite(file, NULL, 0, 0, &error) == 0);
    CHECK(vazao_fsync(file, &error) == 0 && vazao_append(file, "end", 3, &error) == (int64_t)bytes + 10);
    CHECK(vazao_flush(file, &error) == 0);
    CHECK(vazao_ftruncate(file, bytes + 11, &error) == 0);
    CHECK(vazao_fstat(file, &attributes, &error) == 0 && attributes.size_bytes == bytes + 11);
    CHECK(vazao_file_close(file, &error) == 0);
    reader = open_file(volume, "/file", O_RDONLY | O_CLOEXEC);
    CHECK(vazao_pread(reader, in, 20, bytes + 10, &error) == 1 && in[0] == 'e');

    FAILS(vazao_pread(file, in, 1, 0, &error), EBADF, "vz:/file: the file is closed");
    FAILS(vazao_pwrite(file, in, 1, 0, &error), EBADF, "the file is closed");
    FAILS(vazao_fsync(file, &error), EBADF, "the file is closed");
    FAILS(vazao_file_close(file, &error), EBADF, "the file is closed");
    FAILS(vazao_pwrite(reader, in, 1, 0, &error), EBADF, "vz:/file: the file was not opened for writing");
    FAILS(vazao_ftruncate(reader, 1, &error), EBADF, "not opened for writing");
    FAILS(vazao_append(reader, "x", 1, &error), EBADF, "not opened for writing");
    FAILS(vazao_pread(reader, NULL, 1, 0, &error), EINVAL, "`buffer` is NULL");
    FAILS(vazao_pread(reader, in, (size_t)-1, 0, &error), EINVAL, "negative");
    FAILS(vazao_fstat(reader, NULL, &error), EINVAL, "`attributes` is NULL");
    vazao_file_free(file);
    vazao_file_free(reader);

    FAILS(vazao_open(volume, "/none", O_RDONLY, 0, &file, &error), ENOENT, "vz:/none: no such file");
    CHECK(file == NULL);
    FAILS(vazao_open(volume, "/file", O_RDWR | O_CREAT | O_EXCL, 0, &file, &error), EEXIST, "vz:/file");
    FAILS(vazao_open(volume, "/l", O_RDONLY, 0, &file, &error), EISDIR, "vz:/l");
    FAILS(vazao_open(volume, "/file", O_WRONLY | O_APPEND, 0, &file, &error), EINVAL, "vazao_append()");
    FAILS(vazao_open(volume, "/file", O_RDONLY | O_DIRECTORY, 0, &file, &error), EINVAL, "not supported");
    FAILS(vazao_open(volume, "file", O_RDONLY, 0, &file, &error), EINVAL, "from the root on: /a/b");
    FAILS(vazao_open(volume, "", O_RDONLY, 0, &file, &error), EINVAL, "from the root on: /a/b");
    FAILS(vazao_open(volume, NULL, O_RDONLY, 0, &file, &error), EINVAL, "`path` is NULL");
    FAILS(vazao_open(volume, "/file", O_RDONLY, 0, NULL, &error), EINVAL, "`file` is NULL");
    file = open_file(volume, "/file", O_WRONLY);
    FAILS(vazao_pread(file, in, 1, 0, &error), EBADF, "not opened for reading");
    /* Freed without being closed: what was written is there all the same. */
    CHECK(vazao_pwrite(file, "A", 1, 0, &error) == 1);
    vazao_file_free(file);
    file = open_file(volume, "/file", O_RDONLY);
    CHECK(vazao_pread(file, in, 1, 0, &error) == 1 && in[0] == 'A');
    vazao_file_free(file);
    free(out);
    free(in);
}

static void ranges(vazao_connection *volume)
{
    vazao_error *error = NULL;
    char out[2000], in[2000];
    vazao_file *file = open_file(volume, "/ranges", O_RDWR | O_CREAT | O_TRUNC);
    vazao_range list[3] = {{100000, out, 500, 0}, {5, out + 500, 700, 0}, {3000000, out + 1200, 800, 0}};
    vazao_strided strided = {10, 100, 1000, 20};
    vazao_attributes attributes;
    vazao_layout layout;
    uint64_t found;
    size_t at;

    for (at = 0; at < sizeof out; at++)
        out[at] = (char)(at * 13 + 1);
    CHECK(vazao_write_list(file, list, 3, &error) == 2000 && list[2].done_bytes == 800);
    CHECK(vazao_fsync(file, &error) == 0);
    list[0].buffer = in;
    list[1].buffer = in + 500;
    list[2].buffer = in + 1200;
    list[2].offset += 10;
    memset(in, 0, sizeof in);
    CHECK(vazao_read_list(file, list, 3, &error) == 1990 && list[0].done_bytes == 500);
    CHECK(list[2].done_bytes == 790 && memcmp(in, out, 1200) == 0 && memcmp(in + 1200, out + 1210, 790) == 0);
    CHECK(vazao_read_list(file, NULL, 0, &error) == 0);
    FAILS(vazao_read_list(file, NULL, 1, &error), EINVAL, "`ranges` is NULL");
    FAILS(vazao_read_list(file, list, (size_t)-1, &error), EFBIG, "are the limit");
    list[1].buffer = in + 499;
    FAILS(vazao_read_list(file, list, 3, &error), EINVAL, "overlap");
    list[1].buffer = NULL;
    FAILS(vazao_read_list(file, list, 3, &error), EINVAL, "`buffer` is NULL");
    FAILS(vazao_write_list(file, list, 3, &error), EINVAL, "`buffer` is NULL");

    CHECK(vazao_write_strided(file, &strided, out, 2000, &error) == 2000);
    memset(in, 0, sizeof in);
    CHECK(vazao_read_strided(file, &strided, in, 2000, &error) == 2000 && memcmp(in, out, 2000) == 0);
    CHECK(vazao_pread(file, in, 100, 19010, &error) == 100 && memcmp(in, out + 1900, 100) == 0);
    FAILS(vazao_read_strided(file, &strided, in, 1999, &error), EINVAL, "1999 bytes");
    FAILS(vazao_read_strided(file, NULL, in, 1999, &error), EINVAL, "`ranges` is NULL");
    strided.range_count = (size_t)-1;
    FAILS(vazao_write_strided(file, &strided, out, 2000, &error), EFBIG, "are the limit");

    CHECK(vazao_seek(file, VAZAO_SEEK_HOLE, 0, &found, &error) == 1 && found > 19000 && found <= 2999999);
    CHECK(vazao_seek(file, VAZAO_SEEK_DATA, 1000000, &found, &error) == 1 && found <= 3000000 && found > 1000000);
    CHECK(vazao_seek(file, VAZAO_SEEK_DATA, 3000800, &found, &error) == 0);
    FAILS(vazao_seek(file, 7, 0, &found, &error), EINVAL, "7 is nothing to look for");
    FAILS(vazao_seek(file, VAZAO_SEEK_DATA, 0, NULL, &error), EINVAL, "`found_offset` is NULL");
    CHECK(vazao_make_hole(file, 0, 2000000, &error) == 0 && vazao_pread(file, in, 100, 19010, &error) == 100);
    CHECK(in[0] == 0 && memcmp(in, in + 1, 99) == 0);
    CHECK(vazao_fstat(file, &attributes, &error) == 0 && attributes.size_bytes == 3000800);
    FAILS(vazao_make_hole(file, 2, UINT64_MAX, &error), EFBIG, "vz:/ranges");
    CHECK(vazao_get_layout(volume, "/ranges", &layout, &error) == 0 && layout.width >= 1 && layout.distribution == 1);
    vazao_file_free(file);

    CHECK(vazao_mkdir(volume, "/striped", 0755, &error) == 0);
    CHECK(vazao_set_layout(volume, "/striped", 1 << 20, 1, &error) == 0);
    CHECK(vazao_get_layout(volume, "/striped", &layout, &error) == 0);
    CHECK(layout.stripe_unit_bytes == 1 << 20 && layout.width == 1);
    FAILS(vazao_set_layout(volume, "/striped", 17, 1, &error), EINVAL, "stripe unit 17");
}

static void limits(vazao_connection *volume)
{
    vazao_error *error = NULL;
    vazao_watch *watch = NULL;
    vazao_limit limit;

    memset(&limit, 'x', sizeof limit);
    CHECK(vazao_watch_begin(volume, &watch, &error) == 0);
    usleep(150000);
    CHECK(vazao_watch_limit(watch, &limit, &error) == 0 && strncmp(limit.text, "limit: ", 7) == 0);
    CHECK(strlen(limit.resource) > 1 && limit.share <= 1 && limit.score >= 0 && limit.score <= 1);
    FAILS(vazao_watch_limit(watch, NULL, &error), EINVAL, "`limit` is NULL");
    vazao_watch_free(watch);
    FAILS(vazao_watch_begin(NULL, &watch, &error), EINVAL, "`connection` is NULL");
    CHECK(watch == NULL);
    vazao_watch_free(NULL);
}

/* Files of an area of a node, which AREA names: "data1:/files". */
static void channels(vazao_connection *volume)
{
    vazao_error *error = NULL;
    vazao_attributes attributes;
    vazao_file *file;
    uint64_t found;
    char path[200], in[10];

    snprintf(path, sizeof path, "%s/f", getenv("AREA"));
    file = open_file(volume, path, O_RDWR | O_CREAT | O_EXCL);
    CHECK(vazao_pwrite(file, "0123456789", 10, 5, &error) == 10);
    CHECK(vazao_pread(file, in, 10, 12, &error) == 3 && memcmp(in, "789", 3) == 0);
    CHECK(vazao_flush(file, &error) == 0 && vazao_fsync(file, &error) == 0);
    CHECK(vazao_ftruncate(file, 12, &error) == 0);
    CHECK(vazao_fstat(file, &attributes, &error) == 0 && attributes.size_bytes == 12 && S_ISREG(attributes.mode));
    FAILS(vazao_append(file, "x", 1, &error), EOPNOTSUPP, path);
    FAILS(vazao_seek(file, VAZAO_SEEK_DATA, 0, &found, &error), EOPNOTSUPP, "not of areas");
    CHECK(vazao_file_close(file, &error) == 0);
    FAILS(vazao_pread(file, in, 1, 0, &error), EBADF, "the file is closed");
    vazao_file_free(file);
    FAILS(vazao_open(volume, path, O_RDWR | O_CREAT | O_EXCL, 0600, &file, &error), EEXIST, path);
    FAILS(vazao_open(volume, "none:/x/y", O_RDONLY, 0, &file, &error), ENOENT, "no node is called");
    FAILS(vazao_open(volume, "n1:/../y", O_RDONLY, 0, &file, &error), EINVAL, "n1:/../y");
    file = open_file(volume, path, O_RDONLY);
    FAILS(vazao_pwrite(file, "x", 1, 0, &error), EBADF, "not opened for writing");
    vazao_file_free(file);
}

/* How often a copy was looked at, and what it is told. */
struct looks {
    int count, answer;
    vazao_copy_progress last;
};

static int look(const vazao_copy_progress *progress, void *given)
{
    struct looks *looks = given;

    looks->count += 1;
    looks->last = *progress;
    return looks->answer;
}

static void copies(vazao_connection *volume)
{
    struct looks looks = {0};
    vazao_copy_options options = {0};
    vazao_error *error = NULL;
    vazao_attributes attributes;
    vazao_limit limit;
    vazao_file *file;
    char area[200], other[200];
    const char *sources[1] = {"/data"};

    snprintf(area, sizeof area, "%s/copied", getenv("AREA"));
    snprintf(other, sizeof other, "%s/copied", getenv("OTHER_AREA"));
    options.watcher = look;
    options.context = &looks;
    CHECK(vazao_copy(volume, sources, 1, area, &options, &limit, &error) == 0 && error == NULL);
    CHECK(looks.count > 0 && looks.last.files == 1 && looks.last.files_done == 1 && looks.last.bytes_done == 5000001);
    CHECK(strlen(limit.resource) > 1 && limit.share <= 1);
    sources[0] = area;
    CHECK(vazao_copy(volume, sources, 1, other, NULL, NULL, &error) == 0);
    sources[0] = other;
    CHECK(vazao_copy(volume, sources, 1, "vz:/data.back", NULL, NULL, &error) == 0);
    CHECK(vazao_stat(volume, "/data.back", 0, &attributes, &error) == 0 && attributes.size_bytes == 5000001);

    options.over = VAZAO_COPY_OVER_NONE;
    file = open_file(volume, "/data.back", O_WRONLY | O_TRUNC);
    vazao_file_free(file);
    CHECK(vazao_copy(volume, sources, 1, "vz:/data.back", &options, NULL, &error) == 0);
    CHECK(vazao_stat(volume, "/data.back", 0, &attributes, &error) == 0 && attributes.size_bytes == 0);
    options.over = VAZAO_COPY_OVER_ALL;

    /* Slow enough not to be over when it is told to end. */
    options.bytes_per_second_max = 100000;
    looks.answer = 1;
    FAILS(vazao_copy(volume, sources, 1, "vz:/slow", &options, NULL, &error), ECANCELED, ": cancelled");
    looks.answer = 0;
    options.deadline_ms = 300;
    FAILS(vazao_copy(volume, sources, 1, "vz:/slow", &options, NULL, &error), ETIMEDOUT, "not over by its deadline");
    FAILS(vazao_stat(volume, "/slow", 0, &attributes, &error), ENOENT, "/slow");
    options.bytes_per_second_max = options.deadline_ms = 0;

    sources[0] = "data";
    FAILS(vazao_copy(volume, sources, 1, area, NULL, NULL, &error), EINVAL, "data");
    sources[0] = "vz:/data";
    FAILS(vazao_copy(volume, sources, 1, "vz:/x", NULL, NULL, &error), EINVAL, "no node has a part");
    FAILS(vazao_copy(volume, sources, 1, "none:/x/y", NULL, NULL, &error), ENOENT, "no node is called");
    FAILS(vazao_copy(volume, sources, 0, area, NULL, NULL, &error), EINVAL, "`source_count` is 0");
    FAILS(vazao_copy(volume, NULL, 1, area, NULL, NULL, &error), EINVAL, "`sources` is NULL");
    FAILS(vazao_copy(volume, sources, 1, NULL, NULL, NULL, &error), EINVAL, "`destination` is NULL");
    FAILS(vazao_copy(NULL, sources, 1, area, NULL, NULL, &error), EINVAL, "`connection` is NULL");
    sources[0] = "vz:/none";
    FAILS(vazao_copy(volume, sources, 1, area, NULL, NULL, &error), ENOENT, "vz:/none");
    sources[0] = "vz:/striped";
    FAILS(vazao_copy(volume, sources, 1, area, NULL, NULL, &error), EISDIR, "vz:/striped");
    options.flags = 16;
    FAILS(vazao_copy(volume, sources, 1, area, &options, NULL, &error), EINVAL, "unknown flags 0x10");
    options.flags = VAZAO_COPY_RECURSIVE;
    options.over = 4;
    FAILS(vazao_copy(volume, sources, 1, area, &options, NULL, &error), EINVAL, "over = 4");
    options.over = 0;
    options.method = "magic";
    FAILS(vazao_copy(volume, sources, 1, area, &options, NULL, &error), EINVAL, "magic");
}

static void null_handles(void)
{
    vazao_error *error = NULL;
    vazao_attributes attributes;
    char byte;

    FAILS(vazao_stat(NULL, "/", 0, &attributes, &error), EINVAL, "`connection` is NULL");
    FAILS(vazao_disconnect(NULL, &error), EINVAL, "`connection` is NULL");
    FAILS(vazao_hang_up(NULL, &error), EINVAL, "`connection` is NULL");
    FAILS(vazao_pread(NULL, &byte, 1, 0, &error), EINVAL, "`file` is NULL");
    FAILS(vazao_file_close(NULL, &error), EINVAL, "`file` is NULL");
    FAILS(vazao_connect(NULL, NULL, NULL, &error), EINVAL, "`connection` is NULL");
    CHECK(vazao_stat(NULL, "/", 0, &attributes, NULL) == -EINVAL);
    vazao_connection_free(NULL);
    vazao_directory_free(NULL);
    vazao_file_free(NULL);
    vazao_error_free(NULL);
    CHECK(vazao_error_errno(NULL) == 0 && strcmp(vazao_error_message(NULL), "") == 0);
    CHECK(strchr(vazao_version(), '.') != NULL);
}

/* Connections that cannot be, and ones that end while files are open. */
static void connections(void)
{
    vazao_error *error = NULL;
    vazao_connection *volume;
    vazao_options options;
    vazao_directory *directory;
    vazao_entry entry;
    vazao_file *file;
    char byte;

    FAILS(vazao_connect("/nonexistent/client.toml", NULL, &volume, &error), ENOENT, "vazao up");
    CHECK(volume == NULL);
    FAILS(vazao_connect(getenv("NO_CLUSTER"), NULL, &volume, &error), EHOSTUNREACH, "; ");
    memset(&options, 0, sizeof options);
    options.reserved[3] = 1;
    FAILS(vazao_connect(NULL, &options, &volume, &error), EINVAL, "set the structure to zeros");
    options.reserved[3] = 0;
    options.zone = "a b";
    FAILS(vazao_connect(NULL, &options, &volume, &error), EINVAL, "zone name \"a b\": 1 to 32 letters");
    options.zone = "";
    FAILS(vazao_connect(NULL, &options, &volume, &error), EINVAL, "zone name \"\"");
    options.zone = "r\xed\x6f";
    FAILS(vazao_connect(NULL, &options, &volume, &error), EINVAL, "zone name");
    options.zone = NULL;
    options.name = "calls";
    options.deadline_ms = 10000;
    CHECK(vazao_connect(NULL, &options, &volume, &error) == 0);
    file = open_file(volume, "/left-open", O_RDWR | O_CREAT);
    CHECK(vazao_pwrite(file, "kept", 4, 0, &error) == 4);
    CHECK(vazao_directory_open(volume, "/", 0, &directory, &error) == 0);
    CHECK(vazao_disconnect(volume, &error) == 0);
    FAILS(vazao_pread(file, &byte, 1, 0, &error), EBADF, "the connection is closed");
    FAILS(vazao_directory_next(directory, &entry, &error), EBADF, "the connection is closed");
    FAILS(vazao_disconnect(volume, &error), EBADF, "the connection is closed");
    vazao_connection_free(volume);
    FAILS(vazao_file_close(file, &error), EBADF, "the connection is closed");
    vazao_file_free(file);
    vazao_directory_free(directory);

    volume = connect_to(NULL);
    file = open_file(volume, "/left-open", O_RDONLY);
    CHECK(vazao_pread(file, &byte, 1, 3, &error) == 1 && byte == 't');
    CHECK(vazao_hang_up(volume, &error) == 0);
    FAILS(vazao_mkdir(volume, "/never", 0755, &error), ECANCELED, "vz:/never");
    vazao_file_free(file);
    vazao_connection_free(volume);
}

/* Files near their writer, who says where it is. The script looks where they lie. */
static void zones(void)
{
    static const char *const names[] = { "rio", "bra" };
    static char bytes[100000];
    vazao_error *error = NULL;
    vazao_connection *volume;
    vazao_options options;
    vazao_file *file;
    char path[20];
    int number;

    for (number = 0; number < 2; number++) {
        memset(&options, 0, sizeof options);
        options.zone = names[number];
        CHECK(vazao_connect(NULL, &options, &volume, &error) == 0);
        snprintf(path, sizeof path, "/near/%s", names[number]);
        file = open_file(volume, path, O_RDWR | O_CREAT);
        CHECK(vazao_pwrite(file, bytes, sizeof bytes, 0, &error) == sizeof bytes);
        CHECK(vazao_file_close(file, &error) == 0);
        vazao_file_free(file);
        CHECK(vazao_disconnect(volume, &error) == 0);
        vazao_connection_free(volume);
    }
}

int main(void)
{
    vazao_error *error = NULL;
    vazao_connection *volume = connect_to(NULL);

    null_handles();
    names(volume);
    listings(volume);
    files(volume);
    ranges(volume);
    limits(volume);
    channels(volume);
    copies(volume);
    connections();
    zones();
    CHECK(vazao_disconnect(volume, &error) == 0);
    vazao_connection_free(volume);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
