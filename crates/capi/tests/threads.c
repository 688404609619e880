/* One connection and one file in several threads, a child that is forked meanwhile, and copies with watchers. */
#include "check.h"
#include <sys/wait.h>

struct reader {
    vazao_file *file;
    int rounds;
    int good;
};

/* Reads the whole file again and again. */
static void *read_rounds(void *given)
{
    struct reader *reader = given;
    char *buffer = malloc(1 << 20);
    int64_t read, sum;
    int round;

    for (round = 0; round < reader->rounds; round++) {
        for (sum = 0; (read = vazao_pread(reader->file, buffer, 1 << 20, (uint64_t)sum, NULL)) > 0; sum += read)
            ;
        reader->good += sum == 5000001;
    }
    free(buffer);
    return NULL;
}

/* The sanitizer for threads has no part in this: a child of several threads may start none under it. */
#ifdef __SANITIZE_THREAD__
static void fork_child(vazao_connection *volume, vazao_file *file)
{
    (void)volume;
    (void)file;
}
#else
/* A child that is forked while other threads read. */
static int child(vazao_connection *volume, vazao_file *file)
{
    vazao_error *error = NULL;
    vazao_connection *own;
    char byte;

    failed = 0;
    FAILS(vazao_pread(file, &byte, 1, 0, &error), EBADF, "connect again in the child");
    FAILS(vazao_file_close(file, &error), EBADF, "connect again in the child");
    FAILS(vazao_disconnect(volume, &error), EBADF, "connect again in the child");
    FAILS(vazao_mkdir(volume, "/never", 0755, &error), EBADF, "connect again in the child");
    vazao_file_free(file);
    vazao_connection_free(volume);
    own = connect_to(NULL);
    file = open_file(own, "/data", O_RDONLY);
    CHECK(vazao_pread(file, &byte, 1, 5000000, &error) == 1);
    CHECK(vazao_file_close(file, &error) == 0 && vazao_disconnect(own, &error) == 0);
    vazao_file_free(file);
    vazao_connection_free(own);
    return failed;
}

static void fork_child(vazao_connection *volume, vazao_file *file)
{
    int status = -1;
    pid_t process;

    fflush(stdout);
    process = fork();
    if (process == 0) {
        status = child(volume, file);
        fflush(stdout);
        _exit(status);
    }
    CHECK(waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

static void threads_and_forks(vazao_connection *volume)
{
    vazao_file *file = open_file(volume, "/data", O_RDONLY);
    struct reader readers[4];
    pthread_t threads[4];
    vazao_error *error = NULL;
    int number;

    for (number = 0; number < 4; number++) {
        readers[number] = (struct reader){file, 4, 0};
        pthread_create(&threads[number], NULL, read_rounds, &readers[number]);
    }
    fork_child(volume, file);
    for (number = 0; number < 4; number++) {
        pthread_join(threads[number], NULL);
        CHECK(readers[number].good == 4);
    }
    /* A close waits for the reads of others, and what comes after it fails. */
    pthread_create(&threads[0], NULL, read_rounds, &readers[0]);
    CHECK(vazao_file_close(file, &error) == 0);
    pthread_join(threads[0], NULL);
    FAILS(vazao_file_close(file, &error), EBADF, "the file is closed");
    vazao_file_free(file);
}

/* What a thread that copies and the watcher of its copy change without a mutex, as one is in the other. */
struct looks {
    vazao_connection *volume;
    const char *destination;
    int result, count;
    vazao_copy_progress last;
};

static int look(const vazao_copy_progress *progress, void *given)
{
    struct looks *looks = given;

    looks->count += 1;
    looks->last = *progress;
    return 0;
}

static void *copy(void *given)
{
    const char *sources[1] = {"/data"};
    vazao_copy_options options = {0};
    struct looks *looks = given;

    options.watcher = look;
    options.context = looks;
    looks->result = vazao_copy(looks->volume, sources, 1, looks->destination, &options, NULL, NULL);
    looks->count += 100;
    return NULL;
}

/* Two at once over one connection. */
static void copies(vazao_connection *volume)
{
    char one[200], two[200];
    struct looks looks[2] = {{0}};
    pthread_t threads[2];
    int number;

    snprintf(one, sizeof one, "%s/threads-1", getenv("AREA"));
    snprintf(two, sizeof two, "%s/threads-2", getenv("AREA"));
    looks[0].destination = one;
    looks[1].destination = two;
    for (number = 0; number < 2; number++) {
        looks[number].volume = volume;
        pthread_create(&threads[number], NULL, copy, &looks[number]);
    }
    for (number = 0; number < 2; number++) {
        pthread_join(threads[number], NULL);
        CHECK(looks[number].result == 0 && looks[number].count > 100);
        CHECK(looks[number].last.files_done == 1 && looks[number].last.bytes_done == 5000001);
    }
}

int main(void)
{
    vazao_error *error = NULL;
    vazao_connection *volume = connect_to(NULL);

    threads_and_forks(volume);
    copies(volume);
    CHECK(vazao_disconnect(volume, &error) == 0);
    vazao_connection_free(volume);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
