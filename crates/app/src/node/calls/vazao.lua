-- The remote calls that a node of Vazão answers (`vazao serve --luarpc PORT`).
--
-- Paths: /a/b and vz:/a/b are in the volume, n1:/data/b in the area data of node n1. They are bytes and need not be
-- UTF-8. A record is a line of fields, key=value, with tabs between them; in values \ is written \\, a tab \t and a line
-- end \n. Numbers of bytes are whole and below 2^53.
interface {
  name = "vazao",
  methods = {
    -- Logging in, where the node has a secret: the proof is the HMAC-SHA-256, in hexadecimal digits, of "vazao.lua:" and
    -- the challenge, keyed with the secret's 32 bytes. Both calls go over the connection that is then used.
    challenge = { resulttype = "string", args = {} },
    login = { args = { { direction = "in", type = "string" } } },

    -- list(path): a record for each entry of a directory, with kind and name; at most 10,000, for more there is
    -- list_page(path, cursor, count): begin with the cursor ""; it comes back empty after the last page.
    list = { resulttype = "string", args = { { direction = "in", type = "string" } } },
    list_page = {
      resulttype = "string",
      args = {
        { direction = "in", type = "string" },
        { direction = "inout", type = "string" },
        { direction = "in", type = "double" },
      },
    },
    -- stat(path): a record with kind, size, mode, uid, gid, links, inode, allocated_bytes, accessed, modified, changed
    -- and path. Symbolic links are followed.
    stat = { resulttype = "string", args = { { direction = "in", type = "string" } } },
    -- read(path, offset, count): how many bytes there were, and the bytes; at most 1 MiB in a call, fewer at the end.
    read = {
      resulttype = "double",
      args = {
        { direction = "in", type = "string" },
        { direction = "in", type = "double" },
        { direction = "in", type = "double" },
        { direction = "out", type = "string" },
      },
    },
    -- status(): what `vazao status` prints; status_json(): what it prints with --json.
    status = { resulttype = "string", args = {} },
    status_json = { resulttype = "string", args = {} },
    -- limit(seconds): watches for so long, 0.2 to 10 s, and returns a record for each server, mount and client, with
    -- part, name, read and written bytes a second, and what limits it.
    limit = { resulttype = "string", args = { { direction = "in", type = "double" } } },
    -- copies(): a record for each copy of all nodes; copy_status(id): the record of one;
    -- copy_wait(id, seconds): the same, once it is over or the time (10 s at most) has passed.
    copies = { resulttype = "string", args = {} },
    copy_status = { resulttype = "string", args = { { direction = "in", type = "string" } } },
    copy_wait = {
      resulttype = "string",
      args = { { direction = "in", type = "string" }, { direction = "in", type = "double" } },
    },

    -- The following change something: the node answers them with `write = true` in its section [luarpc].
    --
    -- write(path, offset, bytes): how many were written; the file is made when it is not there.
    write = {
      resulttype = "double",
      args = {
        { direction = "in", type = "string" },
        { direction = "in", type = "double" },
        { direction = "in", type = "string" },
      },
    },
    -- truncate(path, size): cuts a file, or lengthens it with zeros.
    truncate = { args = { { direction = "in", type = "string" }, { direction = "in", type = "double" } } },
    mkdir = { args = { { direction = "in", type = "string" } } },
    -- rename(from, to): what is there under the new name is replaced.
    rename = { args = { { direction = "in", type = "string" }, { direction = "in", type = "string" } } },
    -- remove(path): a file, a link, or an empty directory.
    remove = { args = { { direction = "in", type = "string" } } },
    -- copy_start(source, destination, options): begins a copy between nodes, or a node and the volume, and returns its
    -- id; options are those of `vazao cp` with blanks between them, as in "-r --bwlimit 20M".
    copy_start = {
      resulttype = "string",
      args = {
        { direction = "in", type = "string" },
        { direction = "in", type = "string" },
        { direction = "in", type = "string" },
      },
    },
    copy_cancel = { args = { { direction = "in", type = "string" } } },
  },
}
