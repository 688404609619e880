/* walk: the files below a directory of the volume with their sizes, and the sum.
 *
 *     walk [/DIRECTORY]
 *
 * The cluster is that of $VAZAO_CLUSTER, or the one that the command `vazao` would take.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <vazao.h>

struct sum {
    unsigned long long files;
    unsigned long long bytes;
};

/* Says what went wrong, and lets go of it. */
static void complain(vazao_error *error)
{
    fprintf(stderr, "walk: %s\n", vazao_error_message(error));
    vazao_error_free(error);
}

/* Depth costs memory here, as the path of each directory is kept: a tree of any width takes one listing a level. */
static int walk(vazao_connection *volume, const char *path, struct sum *sum)
{
    vazao_error *error = NULL;
    vazao_directory *directory = NULL;
    vazao_entry entry;
    int more, failed = 0;

    if (vazao_directory_open(volume, path, VAZAO_WITH_ATTRIBUTES, &directory, &error) < 0) {
        complain(error);
        return -1;
    }
    while ((more = vazao_directory_next(directory, &entry, &error)) > 0) {
        size_t bytes = strlen(path) + 1 + entry.name_bytes + 1;
        char *below = malloc(bytes);
        if (below == NULL) {
            failed = -1;
            break;
        }
        snprintf(below, bytes, "%s/%s", strcmp(path, "/") == 0 ? "" : path, entry.name);
        if (S_ISDIR(entry.mode_type)) {
            failed |= walk(volume, below, sum);
        } else {
            printf("%12llu %s\n", (unsigned long long)entry.attributes.size_bytes, below);
            sum->files += 1;
            sum->bytes += entry.attributes.size_bytes;
        }
        free(below);
    }
    if (more < 0) {
        complain(error);
        failed = -1;
    }
    vazao_directory_free(directory);
    return failed;
}

int main(int argc, char **argv)
{
    vazao_error *error = NULL;
    vazao_connection *volume = NULL;
    struct sum sum = {0, 0};
    int failed;

    if (vazao_connect(NULL, NULL, &volume, &error) < 0) {
        complain(error);
        return EXIT_FAILURE;
    }
    failed = walk(volume, argc > 1 ? argv[1] : "/", &sum);
    printf("%llu files, %llu bytes\n", sum.files, sum.bytes);
    if (vazao_disconnect(volume, &error) < 0) {
        complain(error);
        failed = -1;
    }
    vazao_connection_free(volume);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
