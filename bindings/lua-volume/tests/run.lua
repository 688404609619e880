-- Each function of the module against a cluster, and what is wrong to give it. Ends with "N passed, N failed".
-- Arguments: an area ("data1:/files"), and a client.toml of a cluster that is not there.
local vazao = require "vazao"
local area, no_cluster = arg[1], arg[2]
local passed, failed = 0, 0

local function check(holds, what)
    if holds then
        passed = passed + 1
    else
        failed = failed + 1
        print("failed: " .. what)
    end
end

-- A call that returns nil, a message with these words, and a number.
local function fails(words, result, message, number)
    local is_right = result == nil and type(number) == "number" and string.find(message, words, 1, true)
    check(is_right, words .. ": " .. tostring(result) .. ", " .. tostring(message))
end

-- A call that raises an error with these words.
local function raises(words, call, ...)
    local is_good, message = pcall(call, ...)
    check(not is_good and string.find(message, words, 1, true), words .. ": " .. tostring(message))
end

fails("metadata service", vazao.connect(no_cluster))
fails("/none/client.toml", vazao.connect("/none/client.toml"))
local v = assert(vazao.connect())
check(string.find(vazao.version, "^%d+%.%d+%.%d+$"), "version")

local top = "/lua-" .. string.gsub(_VERSION, "[^%d]", "") .. (jit and "-jit" or "")
assert(v:mkdir(top))
fails("file exists", v:mkdir(top))
local bytes = string.rep("0123456789\0", 20000)
check(v:write(top .. "/f", bytes) == true, "write")
check(v:read(top .. "/f") == bytes, "read all")
check(v:read(top .. "/f", 11, 10) == "0123456789", "read a part")
check(v:read(top .. "/f", #bytes) == "", "read at the end")
check(v:write(top .. "/f", "xyz", 1) and v:read(top .. "/f", 0, 5) == "0xyz4", "write into")
check(#v:read(top .. "/f") == #bytes, "the rest stays")
check(v:write(top .. "/f", "short") and v:read(top .. "/f") == "short", "written anew")
local found = v:stat(top .. "/f")
check(found.type == "file" and found.size == 5 and found.mode == 420 and found.links == 1, "stat")
check(math.abs(found.modified - os.time()) < 3600, "modified")
check(v:stat(top).type == "directory", "stat of a directory")
fails("no such file", v:stat(top .. "/none"))
fails("no such file", v:read(top .. "/none"))
fails("is a directory", v:write(top, "x"))
check(v:rename(top .. "/f", top .. "/g") == true, "rename")
assert(v:mkdir(top .. "/d"))
local names = {}
for name, attributes in v:list(top) do
    names[#names + 1] = name .. ":" .. attributes.type .. ":" .. (attributes.type == "file" and attributes.size or 0)
end
table.sort(names)
check(table.concat(names, " ") == "d:directory:0 g:file:5", table.concat(names, " "))
raises("no such file", v.list, v, top .. "/none")

local looks = 0
local limit, why = v:copy("vz:" .. top .. "/g", area .. top .. ".copied", function(progress)
    looks = looks + 1
    check(progress.bytes_done <= progress.bytes, "progress")
end)
check(limit and limit.resource ~= "" and looks > 0, "copy: " .. tostring(why))
check(v:read(area .. top .. ".copied") == "short", "a copy in an area")
fails("cancelled", v:copy("vz:" .. top .. "/g", area .. top .. ".not", function() return false end))
fails("cancelled", v:copy("vz:" .. top .. "/g", area .. top .. ".not", function() error("no more") end))
fails("no node has a part in this", v:copy("vz:" .. top .. "/g", "vz:" .. top .. "/h"))

limit = v:limit()
check(limit.resource ~= "" and string.find(limit.text, "^limit: "), "limit")
check(v:limit() ~= nil, "limit again")

check(v:remove(top .. "/g") == true and v:remove(top .. "/d") == true, "remove")
fails("no such file", v:remove(top .. "/g"))
raises("not a number of bytes", v.read, v, top, -1)
raises("not a number of bytes", v.read, v, top, 0, -1)
raises("string expected", v.stat, v)
raises("vazao.connection expected", v.stat, {}, "/")
raises("function expected", v.copy, v, "a", "b", 7)

-- What nobody holds any more goes, in any order.
local listing = v:list("/")
check(v:close() == true and v:close() == true, "close")
raises("the connection is closed", v.stat, v, "/")
raises("closed", listing)
v, listing = nil, nil
collectgarbage()
collectgarbage()
print(passed .. " passed, " .. failed .. " failed")
os.exit(failed == 0 and 0 or 1)
