/* What the tests in C have in common. Each ends with "N passed, N failed". */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vazao.h>

static int passed, failed;

static void check(int holds, const char *what, const char *file, int line)
{
    if (holds) {
        passed += 1;
    } else {
        failed += 1;
        printf("failed: %s:%d: %s\n", file, line, what);
    }
}

#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)

/* The call fails with this errno, and its message has these words. */
#define FAILS(call, number, words) fails((call), &error, (number), (words), #call, __FILE__, __LINE__)

static void fails(int64_t result, vazao_error **error, int number, const char *words, const char *what,
                  const char *file, int line)
{
    const char *said = vazao_error_message(*error);
    int holds = result == -number && vazao_error_errno(*error) == number && strstr(said, words) != NULL;

    if (!holds)
        printf("%s: %lld, errno %d, \"%s\"\n", what, (long long)result, vazao_error_errno(*error), said);
    check(holds, what, file, line);
    vazao_error_free(*error);
    *error = NULL;
}

static vazao_connection *connect_to(const char *cluster)
{
    vazao_error *error = NULL;
    vazao_connection *volume = NULL;

    if (vazao_connect(cluster, NULL, &volume, &error) < 0) {
        printf("failed: %s\n", vazao_error_message(error));
        exit(1);
    }
    return volume;
}

static vazao_file *open_file(vazao_connection *volume, const char *path, int flags)
{
    vazao_error *error = NULL;
    vazao_file *file = NULL;

    if (vazao_open(volume, path, flags, 0640, &file, &error) < 0) {
        printf("failed: %s\n", vazao_error_message(error));
        exit(1);
    }
    return file;
}
