/* copy: a file into the volume or out of it.
 *
 *     copy LOCAL vz:/FILE
 *     copy vz:/FILE LOCAL
 *
 * Into the volume it ends when the file is durable there.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vazao.h>

enum { BUFFER_BYTES = 1 << 20 };

static int complain(vazao_error *error)
{
    fprintf(stderr, "copy: %s\n", vazao_error_message(error));
    vazao_error_free(error);
    return -1;
}

static int copy_in(FILE *from, vazao_file *to, char *buffer)
{
    vazao_error *error = NULL;
    uint64_t offset = 0;
    size_t bytes;

    while ((bytes = fread(buffer, 1, BUFFER_BYTES, from)) > 0) {
        if (vazao_pwrite(to, buffer, bytes, offset, &error) < 0)
            return complain(error);
        offset += bytes;
    }
    if (ferror(from)) {
        perror("copy");
        return -1;
    }
    return vazao_fsync(to, &error) < 0 ? complain(error) : 0;
}

static int copy_out(vazao_file *from, FILE *to, char *buffer)
{
    vazao_error *error = NULL;
    uint64_t offset = 0;
    int64_t bytes;

    while ((bytes = vazao_pread(from, buffer, BUFFER_BYTES, offset, &error)) > 0) {
        if (fwrite(buffer, 1, (size_t)bytes, to) != (size_t)bytes) {
            perror("copy");
            return -1;
        }
        offset += (uint64_t)bytes;
    }
    return bytes < 0 ? complain(error) : 0;
}

/* Copies between a local file and one of the volume. */
static int copy(vazao_connection *volume, const char *local, const char *remote, int in)
{
    vazao_error *error = NULL;
    vazao_file *file = NULL;
    int flags = in ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    FILE *stream = fopen(local, in ? "rb" : "wb");
    char *buffer = malloc(BUFFER_BYTES);
    int failed = -1;

    if (stream == NULL || buffer == NULL)
        perror(local);
    else if (vazao_open(volume, remote, flags, 0644, &file, &error) < 0)
        complain(error);
    else
        failed = in ? copy_in(stream, file, buffer) : copy_out(file, stream, buffer);
    /* What could not be stored may come out here only. */
    if (file != NULL && vazao_file_close(file, &error) < 0)
        failed = complain(error);
    vazao_file_free(file);
    if (stream != NULL && fclose(stream) != 0) {
        perror(local);
        failed = -1;
    }
    free(buffer);
    return failed;
}

int main(int argc, char **argv)
{
    vazao_error *error = NULL;
    vazao_connection *volume = NULL;
    int in, failed;

    if (argc != 3 || (strncmp(argv[1], "vz:", 3) == 0) == (strncmp(argv[2], "vz:", 3) == 0)) {
        fprintf(stderr, "usage: copy LOCAL vz:/FILE, or copy vz:/FILE LOCAL\n");
        return 2;
    }
    if (vazao_connect(NULL, NULL, &volume, &error) < 0) {
        complain(error);
        return EXIT_FAILURE;
    }
    in = strncmp(argv[2], "vz:", 3) == 0;
    failed = copy(volume, argv[in ? 1 : 2], argv[in ? 2 : 1], in);
    if (vazao_disconnect(volume, &error) < 0)
        failed = complain(error);
    vazao_connection_free(volume);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
