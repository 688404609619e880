/* Names and listings of areas, and extended attributes wherever they are. AREA is an area: "data1:/files". */
#include "check.h"

/* A listing has a directory of this name, with attributes if they were asked for. */
static int has_directory(vazao_connection *volume, const char *path, uint32_t flags, const char *name)
{
    vazao_error *error = NULL;
    vazao_directory *directory = NULL;
    vazao_entry entry;
    int more, count = 0;

    if (vazao_directory_open(volume, path, flags, &directory, &error) < 0) {
        printf("%s\n", vazao_error_message(error));
        vazao_error_free(error);
        return 0;
    }
    while ((more = vazao_directory_next(directory, &entry, &error)) > 0)
        count += strcmp(entry.name, name) == 0 && S_ISDIR(entry.mode_type) && entry.name_bytes == strlen(name)
            && S_ISDIR(entry.attributes.mode) == (flags == VAZAO_WITH_ATTRIBUTES);
    vazao_directory_free(directory);
    return more == 0 && count == 1;
}

/* Names and listings of an area: "data1:/files". */
static void areas(vazao_connection *volume)
{
    vazao_error *error = NULL;
    vazao_directory *directory = NULL;
    vazao_attributes attributes;
    vazao_time then = {1000000000, 7};
    vazao_file *file;
    const char *area = getenv("AREA");
    char node[100], target[16], d[200], f[200], g[200], s[200], elsewhere[200];

    snprintf(node, sizeof node, "%.*s/", (int)strcspn(area, "/"), area);
    snprintf(d, sizeof d, "%s/d", area);
    snprintf(f, sizeof f, "%s/d/f", area);
    snprintf(g, sizeof g, "%s/d/g", area);
    snprintf(s, sizeof s, "%s/d/s", area);
    snprintf(elsewhere, sizeof elsewhere, "%s/g", getenv("OTHER_AREA"));
    CHECK(vazao_mkdir(volume, d, 0750, &error) == 0);
    FAILS(vazao_mkdir(volume, d, 0750, &error), EEXIST, d);
    file = open_file(volume, f, O_WRONLY | O_CREAT | O_EXCL);
    CHECK(vazao_pwrite(file, "12345", 5, 0, &error) == 5 && vazao_file_close(file, &error) == 0);
    vazao_file_free(file);
    CHECK(vazao_chmod(volume, f, 0604, &error) == 0 && vazao_truncate(volume, f, 7, &error) == 0);
    CHECK(vazao_utimes(volume, f, NULL, &then, &error) == 0);
    CHECK(vazao_stat(volume, f, 0, &attributes, &error) == 0 && attributes.mode == (S_IFREG | 0604));
    CHECK(attributes.size_bytes == 7 && attributes.modified.seconds == 1000000000);
    CHECK(attributes.modified.nanoseconds == 7 && attributes.accessed.seconds > 1000000000);
    FAILS(vazao_chown(volume, f, 1, 1, &error), EOPNOTSUPP, "owners stay");

    CHECK(vazao_link(volume, f, g, &error) == 0 && vazao_symlink(volume, "f", s, &error) == 0);
    CHECK(vazao_readlink(volume, s, target, sizeof target, &error) == 1 && strcmp(target, "f") == 0);
    CHECK(vazao_stat(volume, s, 0, &attributes, &error) == 0 && attributes.link_count == 2);
    CHECK(vazao_stat(volume, s, VAZAO_NO_FOLLOW, &attributes, &error) == 0 && S_ISLNK(attributes.mode));
    FAILS(vazao_rename(volume, g, f, VAZAO_RENAME_NO_REPLACE, &error), EEXIST, g);
    FAILS(vazao_rename(volume, g, elsewhere, 0, &error), EXDEV, elsewhere);
    FAILS(vazao_rename(volume, g, "/g", 0, &error), EXDEV, "vazao_copy()");
    FAILS(vazao_rename(volume, "/data", g, 0, &error), EXDEV, g);
    FAILS(vazao_link(volume, g, elsewhere, &error), EXDEV, elsewhere);
    CHECK(vazao_rename(volume, g, s, 0, &error) == 0);
    FAILS(vazao_stat(volume, g, 0, &attributes, &error), ENOENT, g);

    CHECK(has_directory(volume, area, 0, "d") && has_directory(volume, area, VAZAO_WITH_ATTRIBUTES, "d"));
    CHECK(has_directory(volume, node, 0, "files") && has_directory(volume, node, VAZAO_WITH_ATTRIBUTES, "files"));
    FAILS(vazao_directory_open(volume, f, 0, &directory, &error), ENOTDIR, f);
    FAILS(vazao_directory_open(volume, g, 0, &directory, &error), ENOENT, g);
    FAILS(vazao_directory_open(volume, "none:/", 0, &directory, &error), ENOENT, "no node is called");
    FAILS(vazao_stat(volume, "data1:/none/x", 0, &attributes, &error), ENOENT, "data1:/none");
    FAILS(vazao_stat(volume, "data1:/", 0, &attributes, &error), EINVAL, "NODE:/AREA/path");
    FAILS(vazao_rmdir(volume, d, &error), ENOTEMPTY, d);
    CHECK(vazao_unlink(volume, f, &error) == 0 && vazao_unlink(volume, s, &error) == 0);
    CHECK(vazao_rmdir(volume, d, &error) == 0);
}

/* Extended attributes of a path, in the volume or in an area. */
static void xattrs_of(vazao_connection *volume, const char *path)
{
    vazao_error *error = NULL;
    char value[16] = "", names[32];
    vazao_file *file = open_file(volume, path, O_WRONLY | O_CREAT);

    CHECK(vazao_file_close(file, &error) == 0);
    vazao_file_free(file);
    FAILS(vazao_getxattr(volume, path, "user.a", value, 16, 0, &error), ENODATA, path);
    FAILS(vazao_removexattr(volume, path, "user.a", 0, &error), ENODATA, path);
    FAILS(vazao_setxattr(volume, path, "user.a", "x", 1, VAZAO_XATTR_REPLACE, &error), ENODATA, path);
    CHECK(vazao_listxattr(volume, path, NULL, 0, 0, &error) == 0);
    CHECK(vazao_setxattr(volume, path, "user.a", "1\0003", 3, VAZAO_XATTR_CREATE, &error) == 0);
    CHECK(vazao_setxattr(volume, path, "user.bc", NULL, 0, 0, &error) == 0);
    FAILS(vazao_setxattr(volume, path, "user.a", "x", 1, VAZAO_XATTR_CREATE, &error), EEXIST, path);
    CHECK(vazao_getxattr(volume, path, "user.a", value, 3, 0, &error) == 3 && memcmp(value, "1\0003", 4) == 0);
    CHECK(vazao_getxattr(volume, path, "user.a", NULL, 0, 0, &error) == 3);
    CHECK(vazao_getxattr(volume, path, "user.bc", value, 16, 0, &error) == 0);
    FAILS(vazao_getxattr(volume, path, "user.a", value, 2, 0, &error), ERANGE, "2 bytes, and the value takes 3");
    CHECK(vazao_listxattr(volume, path, NULL, 0, 0, &error) == 15);
    CHECK(vazao_listxattr(volume, path, names, sizeof names, 0, &error) == 15 && names[14] == 0);
    CHECK((strcmp(names, "user.a") == 0 && strcmp(names + 7, "user.bc") == 0)
          || (strcmp(names, "user.bc") == 0 && strcmp(names + 8, "user.a") == 0));
    FAILS(vazao_listxattr(volume, path, names, 14, 0, &error), ERANGE, "all names takes 15");
    CHECK(vazao_setxattr(volume, path, "user.a", "4", 1, VAZAO_XATTR_REPLACE, &error) == 0);
    CHECK(vazao_getxattr(volume, path, "user.a", value, 16, 0, &error) == 1 && value[0] == '4');
    CHECK(vazao_removexattr(volume, path, "user.a", 0, &error) == 0);
    CHECK(vazao_listxattr(volume, path, names, sizeof names, 0, &error) == 8 && strcmp(names, "user.bc") == 0);
    FAILS(vazao_setxattr(volume, path, "user.a", "x", 1, 6, &error), EINVAL, "VAZAO_XATTR_CREATE beside");
    FAILS(vazao_setxattr(volume, path, "user.a", "x", 1, 8, &error), EINVAL, "unknown flags 0x8");
    FAILS(vazao_setxattr(volume, path, "user.a", NULL, 1, 0, &error), EINVAL, "`value` is NULL");
    FAILS(vazao_getxattr(volume, path, NULL, value, 16, 0, &error), EINVAL, "`name` is NULL");
    FAILS(vazao_getxattr(volume, path, "user.a", NULL, 16, 0, &error), EINVAL, "`buffer` is NULL");
    FAILS(vazao_listxattr(volume, NULL, NULL, 0, 0, &error), EINVAL, "`path` is NULL");
    FAILS(vazao_removexattr(NULL, path, "user.a", 0, &error), EINVAL, "`connection` is NULL");
    CHECK(vazao_unlink(volume, path, &error) == 0);
}

static void xattrs(vazao_connection *volume)
{
    vazao_error *error = NULL;
    char path[200];

    xattrs_of(volume, "/x");
    snprintf(path, sizeof path, "%s/x", getenv("AREA"));
    xattrs_of(volume, path);
    /* Of a link, and of what it leads to. */
    CHECK(vazao_symlink(volume, "data", "/x", &error) == 0);
    CHECK(vazao_setxattr(volume, "/x", "user.a", "file", 4, 0, &error) == 0);
    CHECK(vazao_setxattr(volume, "/x", "trusted.a", "link", 4, VAZAO_NO_FOLLOW, &error) == 0);
    CHECK(vazao_listxattr(volume, "/data", NULL, 0, 0, &error) == 7);
    CHECK(vazao_listxattr(volume, "/x", NULL, 0, VAZAO_NO_FOLLOW, &error) == 10);
    FAILS(vazao_setxattr(volume, "/data", "mine", "x", 1, 0, &error), EOPNOTSUPP, "begins with \"user.\"");
    CHECK(vazao_removexattr(volume, "/x", "user.a", 0, &error) == 0);
    CHECK(vazao_unlink(volume, "/x", &error) == 0);
}

int main(void)
{
    vazao_error *error = NULL;
    vazao_connection *volume = connect_to(NULL);

    areas(volume);
    xattrs(volume);
    CHECK(vazao_disconnect(volume, &error) == 0);
    vazao_connection_free(volume);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
