/* The volume of a Vazão cluster for Lua 5.1 to 5.4 and LuaJIT, over libvazao: see README.md.
 *
 * Functions that fail return nil, a message with its remedy, and an errno, as those of Lua's own io library do. Only
 * wrong arguments, and what goes wrong in the middle of a `for`, are errors of Lua.
 */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <lauxlib.h>
#include <lua.h>
#include <string.h>
#include <sys/stat.h>
#include <vazao.h>

#define CONNECTION "vazao.connection"
#define LISTING "vazao.listing"

/* What is read by one call where no number of bytes is asked for. */
enum { READ_BYTES = 1 << 20 };

struct connection {
    vazao_connection *volume;
    vazao_watch *watch;
};

struct listing {
    vazao_directory *directory;
};

static int failed(lua_State *L, vazao_error *error)
{
    lua_pushnil(L);
    lua_pushstring(L, vazao_error_message(error));
    lua_pushinteger(L, vazao_error_errno(error));
    vazao_error_free(error);
    return 3;
}

static int raised(lua_State *L, vazao_error *error)
{
    lua_pushstring(L, vazao_error_message(error));
    vazao_error_free(error);
    return lua_error(L);
}

static int done(lua_State *L, int result, vazao_error *error)
{
    if (result < 0)
        return failed(L, error);
    lua_pushboolean(L, 1);
    return 1;
}

static struct connection *given(lua_State *L)
{
    struct connection *connection = luaL_checkudata(L, 1, CONNECTION);

    if (connection->volume == NULL)
        luaL_error(L, "the connection is closed");
    return connection;
}

/* A number of bytes, which is not negative. */
static uint64_t bytes_at(lua_State *L, int index, uint64_t otherwise)
{
    lua_Number number;

    if (lua_isnoneornil(L, index))
        return otherwise;
    number = luaL_checknumber(L, index);
    luaL_argcheck(L, number >= 0 && number <= 9007199254740992.0, index, "not a number of bytes");
    return (uint64_t)number;
}

static void set_integer(lua_State *L, const char *name, uint64_t number)
{
    lua_pushinteger(L, (lua_Integer)number);
    lua_setfield(L, -2, name);
}

static void set_number(lua_State *L, const char *name, double number)
{
    lua_pushnumber(L, (lua_Number)number);
    lua_setfield(L, -2, name);
}

static void set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

static const char *type_name(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "directory";
    case S_IFLNK: return "link";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    case S_IFCHR: return "character device";
    default: return "block device";
    }
}

static void push_attributes(lua_State *L, const vazao_attributes *attributes)
{
    lua_newtable(L);
    set_text(L, "type", type_name(attributes->mode));
    set_integer(L, "size", attributes->size_bytes);
    set_integer(L, "mode", attributes->mode & 07777);
    set_integer(L, "links", attributes->link_count);
    set_integer(L, "uid", attributes->uid);
    set_integer(L, "gid", attributes->gid);
    set_number(L, "modified", (double)attributes->modified.seconds + (double)attributes->modified.nanoseconds / 1e9);
    set_number(L, "accessed", (double)attributes->accessed.seconds + (double)attributes->accessed.nanoseconds / 1e9);
}

static void push_limit(lua_State *L, const vazao_limit *limit)
{
    lua_newtable(L);
    set_text(L, "resource", limit->resource);
    set_text(L, "place", limit->place);
    set_text(L, "text", limit->text);
    if (limit->share >= 0)
        set_number(L, "share", limit->share);
}

/* vazao.connect([cluster_file]) */
static int l_connect(lua_State *L)
{
    const char *file = luaL_optstring(L, 1, NULL);
    struct connection *connection = lua_newuserdata(L, sizeof *connection);
    vazao_error *error = NULL;

    memset(connection, 0, sizeof *connection);
    luaL_getmetatable(L, CONNECTION);
    lua_setmetatable(L, -2);
    if (vazao_connect(file, NULL, &connection->volume, &error) < 0
        || vazao_watch_begin(connection->volume, &connection->watch, &error) < 0)
        return failed(L, error);
    return 1;
}

static void let_go(struct connection *connection)
{
    vazao_watch_free(connection->watch);
    vazao_connection_free(connection->volume);
    connection->watch = NULL;
    connection->volume = NULL;
}

/* v:close(): what could not be stored is told here. */
static int l_close(lua_State *L)
{
    struct connection *connection = luaL_checkudata(L, 1, CONNECTION);
    vazao_error *error = NULL;
    int result = connection->volume == NULL ? 0 : vazao_disconnect(connection->volume, &error);

    let_go(connection);
    return done(L, result, error);
}

static int l_collect(lua_State *L)
{
    let_go(luaL_checkudata(L, 1, CONNECTION));
    return 0;
}

/* v:stat(path) */
static int l_stat(lua_State *L)
{
    vazao_attributes attributes;
    vazao_error *error = NULL;

    if (vazao_stat(given(L)->volume, luaL_checkstring(L, 2), 0, &attributes, &error) < 0)
        return failed(L, error);
    push_attributes(L, &attributes);
    return 1;
}

static int l_listing_next(lua_State *L)
{
    struct listing *listing = luaL_checkudata(L, lua_upvalueindex(1), LISTING);
    vazao_error *error = NULL;
    vazao_entry entry;
    int found = vazao_directory_next(listing->directory, &entry, &error);

    if (found < 0)
        return raised(L, error);
    if (found == 0) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushlstring(L, entry.name, entry.name_bytes);
    push_attributes(L, &entry.attributes);
    return 2;
}

static int l_listing_collect(lua_State *L)
{
    struct listing *listing = luaL_checkudata(L, 1, LISTING);

    vazao_directory_free(listing->directory);
    listing->directory = NULL;
    return 0;
}

/* for name, attributes in v:list(path) do ... end */
static int l_list(lua_State *L)
{
    vazao_connection *volume = given(L)->volume;
    const char *path = luaL_checkstring(L, 2);
    struct listing *listing = lua_newuserdata(L, sizeof *listing);
    vazao_error *error = NULL;

    listing->directory = NULL;
    luaL_getmetatable(L, LISTING);
    lua_setmetatable(L, -2);
    if (vazao_directory_open(volume, path, VAZAO_WITH_ATTRIBUTES, &listing->directory, &error) < 0)
        return raised(L, error);
    /* The listing keeps its connection. */
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, l_listing_next, 2);
    return 1;
}

/* Reads up to `left` bytes into a string of Lua. */
static int64_t read_all(luaL_Buffer *buffer, vazao_file *file, uint64_t offset, uint64_t left, vazao_error **error)
{
    char part[LUAL_BUFFERSIZE > 65536 ? LUAL_BUFFERSIZE : 65536];
    uint64_t wanted;
    int64_t count = 1;

    while (left > 0 && count > 0) {
        wanted = left < sizeof part ? left : sizeof part;
        count = vazao_pread(file, part, (size_t)wanted, offset, error);
        if (count > 0) {
            luaL_addlstring(buffer, part, (size_t)count);
            offset += (uint64_t)count;
            left -= (uint64_t)count;
        }
    }
    return count;
}

/* v:read(path [, offset [, count]]): all of the file from there on, or up to so many bytes. */
static int l_read(lua_State *L)
{
    vazao_connection *volume = given(L)->volume;
    const char *path = luaL_checkstring(L, 2);
    uint64_t offset = bytes_at(L, 3, 0), count = bytes_at(L, 4, UINT64_MAX);
    vazao_error *error = NULL;
    vazao_file *file = NULL;
    luaL_Buffer buffer;
    int64_t result;

    if (vazao_open(volume, path, O_RDONLY, 0, &file, &error) < 0)
        return failed(L, error);
    luaL_buffinit(L, &buffer);
    result = read_all(&buffer, file, offset, count, &error);
    vazao_file_free(file);
    luaL_pushresult(&buffer);
    return result < 0 ? failed(L, error) : 1;
}

/* v:write(path, bytes [, offset]): without an offset the file has just these bytes then. Durable when it returns. */
static int l_write(lua_State *L)
{
    vazao_connection *volume = given(L)->volume;
    const char *path = luaL_checkstring(L, 2);
    size_t length;
    const char *bytes = luaL_checklstring(L, 3, &length);
    int flags = O_WRONLY | O_CREAT | (lua_isnoneornil(L, 4) ? O_TRUNC : 0);
    uint64_t offset = bytes_at(L, 4, 0);
    vazao_error *error = NULL;
    vazao_file *file = NULL;
    int64_t result;

    if (vazao_open(volume, path, flags, 0644, &file, &error) < 0)
        return failed(L, error);
    result = vazao_pwrite(file, bytes, length, offset, &error);
    if (result >= 0)
        result = vazao_fsync(file, &error);
    if (result >= 0)
        result = vazao_file_close(file, &error);
    vazao_file_free(file);
    return done(L, (int)(result < 0 ? -1 : 0), error);
}

static int l_mkdir(lua_State *L)
{
    vazao_error *error = NULL;
    int result = vazao_mkdir(given(L)->volume, luaL_checkstring(L, 2), 0755, &error);

    return done(L, result, error);
}

/* v:remove(path): a file, or an empty directory. */
static int l_remove(lua_State *L)
{
    vazao_connection *volume = given(L)->volume;
    const char *path = luaL_checkstring(L, 2);
    vazao_attributes attributes;
    vazao_error *error = NULL;
    int result = vazao_stat(volume, path, VAZAO_NO_FOLLOW, &attributes, &error);

    if (result >= 0)
        result = (S_ISDIR(attributes.mode) ? vazao_rmdir : vazao_unlink)(volume, path, &error);
    return done(L, result, error);
}

/* v:rename(path, new_path) */
static int l_rename(lua_State *L)
{
    vazao_error *error = NULL;
    int result = vazao_rename(given(L)->volume, luaL_checkstring(L, 2), luaL_checkstring(L, 3), 0, &error);

    return done(L, result, error);
}

/* A watcher that calls the function at the top of the stack; one that fails, or returns false, cancels. */
static int watch_copy(const vazao_copy_progress *progress, void *context)
{
    lua_State *L = context;
    int cancels;

    lua_pushvalue(L, -1);
    lua_newtable(L);
    set_integer(L, "files", progress->files);
    set_integer(L, "files_done", progress->files_done);
    set_integer(L, "bytes", progress->bytes);
    set_integer(L, "bytes_done", progress->bytes_done);
    set_integer(L, "bytes_per_second", progress->bytes_per_second);
    cancels = lua_pcall(L, 1, 1, 0) != 0 || (lua_isboolean(L, -1) && !lua_toboolean(L, -1));
    lua_pop(L, 1);
    return cancels;
}

/* v:copy(source, destination [, watcher]): between nodes, or a node and the volume. Returns what limited it. */
static int l_copy(lua_State *L)
{
    vazao_connection *volume = given(L)->volume;
    const char *source = luaL_checkstring(L, 2), *destination = luaL_checkstring(L, 3);
    vazao_copy_options options = {0};
    vazao_error *error = NULL;
    vazao_limit limit;

    options.flags = VAZAO_COPY_RECURSIVE;
    if (!lua_isnoneornil(L, 4)) {
        luaL_checktype(L, 4, LUA_TFUNCTION);
        lua_settop(L, 4);
        options.watcher = watch_copy;
        options.context = L;
    }
    if (vazao_copy(volume, &source, 1, destination, &options, &limit, &error) < 0)
        return failed(L, error);
    push_limit(L, &limit);
    return 1;
}

/* v:limit(): what limited this program's work since the connection was made, or since this was last called. */
static int l_limit(lua_State *L)
{
    struct connection *connection = given(L);
    vazao_error *error = NULL;
    vazao_limit limit;

    if (vazao_watch_limit(connection->watch, &limit, &error) < 0)
        return failed(L, error);
    vazao_watch_free(connection->watch);
    connection->watch = NULL;
    if (vazao_watch_begin(connection->volume, &connection->watch, &error) < 0)
        return failed(L, error);
    push_limit(L, &limit);
    return 1;
}

static void set_functions(lua_State *L, const luaL_Reg *functions)
{
    for (; functions->name != NULL; functions++) {
        lua_pushcfunction(L, functions->func);
        lua_setfield(L, -2, functions->name);
    }
}

int luaopen_vazao(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"close", l_close}, {"copy", l_copy}, {"limit", l_limit}, {"list", l_list}, {"mkdir", l_mkdir},
        {"read", l_read}, {"remove", l_remove}, {"rename", l_rename}, {"stat", l_stat}, {"write", l_write},
        {"__gc", l_collect}, {"__close", l_collect}, {NULL, NULL}};
    static const luaL_Reg module[] = {{"connect", l_connect}, {NULL, NULL}};

    luaL_newmetatable(L, LISTING);
    lua_pushcfunction(L, l_listing_collect);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, CONNECTION);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    set_functions(L, methods);
    lua_newtable(L);
    set_functions(L, module);
    set_text(L, "version", vazao_version());
    return 1;
}
