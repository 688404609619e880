/* reads: reads of a file by the library for C, timed. `./x bench-library` starts it;
 * crates/client/examples/reads.rs says its requests and its answers.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vazao.h>

static void fail(const char *what)
{
    fprintf(stderr, "reads (C): %s\n", what);
    exit(1);
}

static void *memory(size_t bytes)
{
    void *place = calloc(bytes ? bytes : 1, 1);

    if (place == NULL)
        fail("no memory");
    return place;
}

static void check(const char *bytes, int64_t count, uint64_t offset)
{
    uint64_t first, last;

    if (count < 8)
        fail("less than a number was read");
    memcpy(&first, bytes, 8);
    memcpy(&last, bytes + count - 8, 8);
    if (first != offset || last != offset + (uint64_t)count - 8)
        fail("wrong bytes: is the file that of ./x bench-library?");
}

/* The numbers of a file. */
static uint64_t *offsets(const char *name, size_t *count)
{
    FILE *file = fopen(name, "rb");
    uint64_t *numbers;
    long bytes;

    if (file == NULL || fseek(file, 0, SEEK_END) || (bytes = ftell(file)) < 0)
        fail(name);
    rewind(file);
    *count = (size_t)bytes / 8;
    numbers = memory((size_t)bytes);
    if (fread(numbers, 8, *count, file) != *count)
        fail(name);
    fclose(file);
    return numbers;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int64_t read_one(vazao_file *file, char *buffer, size_t bytes, uint64_t offset)
{
    vazao_error *error = NULL;
    int64_t count = vazao_pread(file, buffer, bytes, offset, &error);

    if (count < 0)
        fail(vazao_error_message(error));
    return count;
}

static void stream(vazao_file *file, char *buffer, size_t bytes)
{
    uint64_t offset = 0;
    int64_t count;

    while ((count = read_one(file, buffer, bytes, offset)) > 0) {
        check(buffer, count, offset);
        offset += (uint64_t)count;
    }
}

static void list(vazao_file *file, char *buffer, size_t bytes, const uint64_t *places, size_t count)
{
    vazao_range *ranges = memory(count * sizeof *ranges);
    vazao_error *error = NULL;
    size_t index;

    for (index = 0; index < count; index++) {
        ranges[index].offset = places[index];
        ranges[index].buffer = buffer + index * bytes;
        ranges[index].buffer_bytes = bytes;
    }
    if (vazao_read_list(file, ranges, count, &error) < 0)
        fail(vazao_error_message(error));
    for (index = 0; index < count; index++)
        check(ranges[index].buffer, (int64_t)ranges[index].done_bytes, places[index]);
    free(ranges);
}

static uint64_t answer(vazao_connection *connection, const char *path, const char *line)
{
    char kind[16], name[4096];
    size_t bytes, first, step, index, count = 0;
    uint64_t *places = NULL, started_ns, took_ns;
    vazao_error *error = NULL;
    vazao_file *file = NULL;
    char *buffer;
    int words = sscanf(line, "%15s %zu %4095s %zu %zu", kind, &bytes, name, &first, &step);

    if (words >= 3)
        places = offsets(name, &count);
    buffer = memory(words == 3 ? bytes * count : bytes);
    started_ns = now_ns();
    if (vazao_open(connection, path, O_RDONLY, 0, &file, &error))
        fail(vazao_error_message(error));
    if (words == 2 && !strcmp(kind, "stream"))
        stream(file, buffer, bytes);
    else if (words == 3 && !strcmp(kind, "list"))
        list(file, buffer, bytes, places, count);
    else if (words == 5 && !strcmp(kind, "each") && step > 0)
        for (index = first; index < count; index += step)
            check(buffer, read_one(file, buffer, bytes, places[index]), places[index]);
    else
        fail("not a request");
    took_ns = now_ns() - started_ns;
    vazao_file_free(file);
    free(buffer);
    free(places);
    return took_ns;
}

int main(int count, char **arguments)
{
    vazao_connection *connection = NULL;
    vazao_error *error = NULL;
    char line[8192];

    if (count != 2)
        fail("usage: reads FILE");
    if (vazao_connect(NULL, NULL, &connection, &error))
        fail(vazao_error_message(error));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        printf("%" PRIu64 "\n", answer(connection, arguments[1], line));
        fflush(stdout);
    }
    vazao_connection_free(connection);
    return 0;
}
