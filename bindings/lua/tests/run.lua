--- Tests of what needs no connection: interface files, values on a line, options. Run by each version of Lua:
-- lua5.4 bindings/lua/tests/run.lua, from the root of the repository. Connections are tested by bindings/tests.

package.path = "bindings/lua/?.lua;" .. package.path
local luarpc = require "luarpc"
local lines = require "luarpc.lines"
local options = require "luarpc.options"

local passed, failed = 0, 0

local function test(name, body)
  local ok, reason = pcall(body)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print(("failed: %s: %s: %s"):format(jit and jit.version or _VERSION, name, tostring(reason)))
  end
end

local function same(found, wanted, what)
  if found ~= wanted then
    error(("%s: %q instead of %q"):format(what or "value", tostring(found), tostring(wanted)), 2)
  end
end

local function refused(text, ...)
  local ok, reason = pcall(luarpc.readInterface, text)
  if ok then error("accepted: " .. text:sub(1, 80), 2) end
  for _, part in ipairs { ... } do
    if not tostring(reason):find(part, 1, true) then error(("%q has no %q"):format(tostring(reason), part), 2) end
  end
end

local FOO = [=[
-- What the course's example looks like.
interface { name = minhaInt, --[[ an undefined
  global ]] methods = {
  ["foo"] = { resulttype = "double"; args = { { direction = "in", type = 'double' }, { type = "string", direction = "inout", }, } },
  boo = { args = {} },
} };
]=]

test("an_interface_is_read_with_comments_and_both_separators", function()
  local read = luarpc.readInterface(FOO)
  same(read.name, nil, "name")
  same(table.concat(read.names, " "), "foo boo")
  same(read.methods.foo.result, "double")
  same(table.concat(read.methods.foo.inputs, " "), "double string")
  same(table.concat(read.methods.foo.outputs, " "), "string")
  same(read.methods.boo.result, "void", "a missing resulttype")
end)

test("strings_of_an_interface_have_the_escapes_and_brackets_of_lua", function()
  same(luarpc.readInterface([[interface({ name = "a\65\n\"", methods = {} })]]).name, 'aA\n"')
  same(luarpc.readInterface("interface { name = [==[\na]]b]==], methods = {} }").name, "a]]b")
end)

test("an_interface_is_read_from_a_file_and_a_missing_file_is_named", function()
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(FOO)
  file:close()
  local ok, read = pcall(luarpc.readInterface, path)
  os.remove(path)
  assert(ok, read)
  same(#read.names, 2)
  refused("/there/is/no.lua", "/there/is/no.lua", "No such file")
end)

test("programs_are_refused_with_their_line_and_never_run", function()
  _G.ran = nil
  for text, line in pairs {
    ["ran = true interface { methods = {} }"] = 1,
    ["interface { name = x,\n methods = (function() ran = true end)() }"] = 2,
    ["interface { name = os.execute('touch ran'), methods = {} }"] = 1,
    ["interface { methods = {} }\nwhile true do end"] = 2,
    ["interface { name = ('x'):rep(1e9), methods = {} }"] = 1,
    ["interface { name = 'x' .. 'y', methods = {} }"] = 1,
    ["interface { [1 + 1] = 3, methods = {} }"] = 1,
    ["local t = {} interface { methods = t }"] = 1,
    ["interface { methods = {} } interface { methods = {} }"] = 1,
    ["\27Lua{"] = 1,
  } do
    refused(text, "interface:" .. line .. ":")
  end
  same(_G.ran, nil, "what a program would have set")
end)

test("what_is_wrong_in_an_interface_is_named_with_its_line", function()
  local function method(text) return "interface { methods = {\n a = " .. text .. " } }" end
  refused(method '{ resultype = "double" }', ":2:", "resultype")
  refused(method '{ resulttype = "int" }', ":2:", "int", "char, double, string, void")
  refused(method '{ args = { { type = "char" } } }', "argument 1", "direction", "in, inout, out")
  refused(method '{ args = { { direction = "in", type = { } } } }', "argument 1", "type is a table")
  refused(method '{ args = { "double" } }', "argument 1", "table")
  refused(method '{ args = 3 }', "args")
  refused(method '{ }, a = { }', "given twice")
  refused(method '"x', ":2:", "not closed")
  refused('interface { methods = { ["a b"] = {} } }', "a b", "letters")
  refused("interface { methods = { {} } }", "named methods")
  refused("interface { name = 'x' }", "named methods")
  refused("interface { methods = {}", "end of the file")
  refused("interface { --[[", "not closed")
  refused('interface { name = "\\300" , methods = {} }', "255")
  refused('interface { name = "\\q" , methods = {} }', "\\q")
end)

test("size_depth_and_counts_of_an_interface_have_limits", function()
  refused("interface { methods = {} }" .. (" "):rep(64 * 1024), "65536")
  refused("interface { name = " .. ("{"):rep(60000), "more than 8 deep")
  local many = {}
  for i = 1, 257 do many[i] = "m" .. i .. "={}" end
  refused("interface { methods = {" .. table.concat(many, ",") .. "} }", "256")
  local argument = '{direction="in",type="void"},'
  refused("interface { methods = { a = { args = {" .. argument:rep(33) .. "} } } }", "32")
  refused("interface { methods = { " .. ("a"):rep(65) .. " = {} } }", "64")
end)

local EVERY_BYTE = {}
for byte = 0, 255 do EVERY_BYTE[byte + 1] = string.char(byte) end

test("strings_of_all_bytes_survive_in_one_line", function()
  local text = table.concat(EVERY_BYTE) .. '\\n\\"\\\\' .. table.concat(EVERY_BYTE)
  local line = lines.encoders.string(text)
  same(line:find("\n"), nil, "a line end within the line")
  same(lines.decoders.string(line), text)
  same(lines.decoders.string(line .. "\r"), text, "with \\r\\n as line end")
end)

test("each_byte_survives_as_a_char_quoted_and_bare", function()
  for _, chars in ipairs { "quoted", "bare" } do
    for _, char in ipairs(EVERY_BYTE) do
      local line = lines.encoders.char(char, chars)
      same(line:find("\n"), nil, "a line end within the line")
      same(lines.decoders.char(line), char)
      same(lines.decoders.char(line .. "\r"), char, "with \\r\\n as line end")
    end
  end
  same(select(3, lines.decoders.char("x")), "bare")
  same(select(3, lines.decoders.char('"x"')), "quoted")
  same(lines.decoders.char('"""'), '"', "not escaped")
  same(lines.decoders.char('"\\"'), "\\", "not escaped")
end)

test("lines_that_are_no_strings_and_chars_are_refused", function()
  for _, line in ipairs { "", "x", '"', '"x', 'x"', '"a"b"', '"a\\"', '"\\t"', "nil" } do
    same(select(2, lines.decoders.string(line, false)) ~= true, true, line)
  end
  for _, line in ipairs { "", "xy", '""', '"xy"', "é", "nil" } do
    same(select(2, lines.decoders.char(line, false)) ~= true, true, line)
  end
end)

test("doubles_survive_and_are_written_alike_by_all_versions", function()
  for text, value in pairs { ["1"] = 1.0, ["-7"] = -7, ["0.5"] = 0.5, ["1e+20"] = 1e20, ["3.1415"] = 3.1415,
    ["0.10000000000000001"] = 0.1 + 0, ["1.7976931348623157e+308"] = 1.7976931348623157e308, ["5e-324"] = 5e-324 } do
    local line = lines.encoders.double(value)
    if text ~= "0.10000000000000001" and text ~= "5e-324" then same(line, text) end
    same(lines.decoders.double(line), value)
  end
  same(tostring(lines.decoders.double("1.0")), "1")
  same(lines.decoders.double("1.0\r"), 1)
  same(lines.decoders.double("+.5e1"), 5)
  same(1 / lines.decoders.double(lines.encoders.double(-0.0)), -math.huge, "minus zero")
  same(lines.decoders.double("1e-400"), 0, "too small")
end)

test("numbers_that_are_none_or_out_of_range_are_refused", function()
  for _, line in ipairs { "", ".", "-", "1e", "e5", "inf", "-inf", "nan", "0x10", "1_0", "1 2", " 1", "1,5", "nil" } do
    same(select(2, lines.decoders.double(line, false)) ~= true, true, line)
  end
  same(select(2, lines.decoders.double("1e400")), "1e400 is out of the range of a double")
  same(select(2, lines.decoders.double("-1e400")), "-1e400 is out of the range of a double")
  -- Checked by a pattern, a megabyte of digits took minutes.
  local started = os.clock()
  same(select(2, lines.decoders.double(("1"):rep(1024 * 1024) .. "x")), "a number of more than 400 bytes")
  assert(os.clock() - started < 1, "slow")
  for _, value in ipairs { math.huge, -math.huge, 0 / 0 } do
    same(select(2, lines.encoders.double(value)), "a number that is not finite cannot be sent")
  end
  if math.type then
    same(lines.encoders.double(math.mininteger), "-9.2233720368547758e+18", "exact as a double")
    assert(lines.encoders.double(math.maxinteger) == nil, "an integer that a double cannot hold")
  end
  same(select(2, lines.encoders.double("1")), "string where a double is expected")
end)

test("nil_is_a_missing_result_and_no_argument", function()
  for _, kind in ipairs { "double", "string", "char" } do
    local value, ok = lines.decoders[kind]("nil", true)
    same(value, nil)
    same(ok, true, kind)
  end
end)

test("errors_are_recognised_bare_and_quoted", function()
  same(lines.error_of("___ERRORPC: no such thing"), "no such thing")
  same(lines.error_of("___ERRORPC: no such thing\r"), "no such thing")
  same(lines.error_of('"___ERRORPC: a \\"b\\""'), 'a "b"')
  same(lines.error_of('"___ERRORPC: half'), "half")
  same(lines.error_of('"ERRORPC"'), nil)
end)

test("lines_come_in_any_pieces_and_the_long_one_is_refused", function()
  for size = 1, 12 do
    local reader, found = lines.new_reader(10), {}
    local text = "ab\n\nlonger one\nx\n"
    for at = 1, #text, size do
      lines.feed(reader, text:sub(at, at + size - 1))
      local line = lines.next_line(reader)
      while line do
        found[#found + 1] = line
        line = lines.next_line(reader)
      end
    end
    same(table.concat(found, "|"), "ab||longer one|x")
    same(lines.has_rest(reader), false)
  end
  local reader = lines.new_reader(10)
  lines.feed(reader, "12345678901")
  same(select(2, lines.next_line(reader)), "a line is longer than 10 bytes (option line_bytes)")
end)

test("wrong_options_and_ports_are_named", function()
  for key, value in pairs { profile = "open", seconds = 0, line_bytes = "x", chars = "odd", pool = 0, patience = 3 } do
    local ok, reason = pcall(options.check, { [key] = value }, "createProxy")
    assert(not ok and reason:find(key, 1, true), key)
  end
  for _, port in ipairs { 0, 65536, 1.5, "x", -1 } do
    local ok, reason = pcall(luarpc.createProxy, "127.0.0.1", port, FOO)
    assert(not ok and reason:find("port", 1, true), tostring(port))
  end
  assert(not pcall(options.check, { profile = "close", connected = print }, "createProxy"))
end)

test("the_rockspec_has_all_modules", function()
  local rockspec = {}
  local file = assert(io.open("bindings/lua/luarpc-scm-1.rockspec"))
  local text = file:read("*a")
  file:close()
  local chunk = setfenv and setfenv(assert(loadstring(text)), rockspec) or load(text, "rockspec", "t", rockspec)
  chunk()
  local count = 0
  for name, path in pairs(rockspec.build.modules) do
    count = count + 1
    assert(package.loaded[name], name .. " is not loaded by luarpc, or does not exist")
    assert(io.open("bindings/lua/" .. path), path)
  end
  for name in pairs(package.loaded) do
    if name:find("^luarpc") then assert(rockspec.build.modules[name], name .. " is missing") end
  end
  same(count, 6)
end)

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
