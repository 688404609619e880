/* channels: records are written to a file on the disk of a node, and the file is copied to another node.
 *
 *     channels NODE:/AREA/FILE OTHER:/AREA/FILE RECORDS
 *
 * Each call is carried out by the node that has the file. The copy goes from node to node: this program only looks on.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vazao.h>

enum { RECORD_BYTES = 64 };

static int complain(vazao_error *error)
{
    fprintf(stderr, "channels: %s\n", vazao_error_message(error));
    vazao_error_free(error);
    return -1;
}

static int write_records(vazao_file *file, long count)
{
    vazao_error *error = NULL;
    char record[RECORD_BYTES];
    long number;

    for (number = 1; number <= count; number++) {
        memset(record, 0, sizeof record);
        snprintf(record, sizeof record, "record %ld", number);
        if (vazao_pwrite(file, record, sizeof record, (uint64_t)(number - 1) * RECORD_BYTES, &error) < 0)
            return complain(error);
    }
    return vazao_fsync(file, &error) < 0 ? complain(error) : 0;
}

static int read_record(vazao_file *file, long number, char *record)
{
    vazao_error *error = NULL;

    if (vazao_pread(file, record, RECORD_BYTES, (uint64_t)(number - 1) * RECORD_BYTES, &error) < 0)
        return complain(error);
    return 0;
}

/* Four times a second; anything but 0 would cancel the copy. */
static int show(const vazao_copy_progress *progress, void *context)
{
    (void)context;
    fprintf(stderr, "%llu of %llu bytes\n", (unsigned long long)progress->bytes_done,
        (unsigned long long)progress->bytes);
    return 0;
}

static int copy(vazao_connection *volume, const char *from, const char *to)
{
    vazao_copy_options options = {0};
    vazao_error *error = NULL;
    vazao_limit limit;

    options.deadline_ms = 60000;
    options.watcher = show;
    if (vazao_copy(volume, &from, 1, to, &options, &limit, &error) < 0)
        return complain(error);
    printf("limited by: %s\n", limit.resource);
    return 0;
}

int main(int argc, char **argv)
{
    vazao_connection *volume = NULL;
    vazao_error *error = NULL;
    vazao_file *file = NULL;
    char record[RECORD_BYTES];
    long count = argc == 4 ? atol(argv[3]) : 0;
    int status = 1;

    if (count < 1) {
        fprintf(stderr, "usage: channels NODE:/AREA/FILE OTHER:/AREA/FILE RECORDS\n");
        return 2;
    }
    if (vazao_connect(NULL, NULL, &volume, &error) < 0
        || vazao_open(volume, argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644, &file, &error) < 0) {
        complain(error);
    } else if (write_records(file, count) == 0 && read_record(file, (count + 1) / 2, record) == 0) {
        printf("%ld records written, the %ldth is: %s\n", count, (count + 1) / 2, record);
        status = copy(volume, argv[1], argv[2]) < 0;
    }
    vazao_file_free(file);
    vazao_connection_free(volume);
    return status;
}
