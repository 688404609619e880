--- Interface files: what a servant offers and a proxy has. They look like Lua and are read as data: the word
-- `interface`, one table, comments. Nothing of them is ever run, so that a file from elsewhere can do no harm.

local interface = {}

local FILE_BYTES_MAX = 64 * 1024
local DEPTH_MAX = 8
local METHODS_MAX = 256
local ARGUMENTS_MAX = 32
local NAME_BYTES_MAX = 64

local TYPES = { char = true, string = true, double = true, void = true }
local DIRECTIONS = { ["in"] = true, out = true, inout = true }

--- Ends the errors of what is a program.
local DATA = "; an interface file is data and is never run"


local ESCAPES = { a = "\a", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", v = "\v" }

local Parser = {}
Parser.__index = Parser

function Parser:fail(message)
  error({ luarpc = ("%s:%d: %s"):format(self.place, self.line, message) }, 0)
end

function Parser:advance(to)
  local _, lines = self.text:sub(self.at, to - 1):gsub("\n", "")
  self.line, self.at = self.line + lines, to
end

--- Past the end of `[[…]]` or `[==[…]==]` that begins at `at`, and what is in it; nil where there is no such bracket.
function Parser:long_bracket(at)
  local equals = self.text:match("^%[(=*)%[", at)
  if not equals then return nil end
  local first = at + #equals + 2
  local last, after = self.text:find("]" .. equals .. "]", first, true)
  if not last then self:fail("a long bracket [" .. equals .. "[ is not closed") end
  return after + 1, (self.text:sub(first, last - 1):gsub("^\r?\n", ""))
end

function Parser:skip_blanks()
  while true do
    self:advance(self.text:match("^[ \t\r\n\f\v]*()", self.at))
    if self.text:sub(self.at, self.at + 1) ~= "--" then return end
    self:advance(self:long_bracket(self.at + 2) or self.text:match("^[^\n]*()", self.at))
  end
end

function Parser:quoted(quote)
  local parts, at = {}, self.at + 1
  while true do
    local stop = self.text:find("[\\\n" .. quote .. "]", at)
    local found = stop and self.text:sub(stop, stop)
    if not stop or found == "\n" then self:fail("a string is not closed on its line") end
    parts[#parts + 1] = self.text:sub(at, stop - 1)
    if found == quote then
      self:advance(stop + 1)
      return table.concat(parts)
    end
    local escape = self.text:sub(stop + 1, stop + 1)
    local digits = self.text:match("^%d%d?%d?", stop + 1)
    if digits then
      if tonumber(digits) > 255 then self:fail("the escape \\" .. digits .. " is above 255") end
      parts[#parts + 1], at = string.char(tonumber(digits)), stop + 1 + #digits
    elseif ESCAPES[escape] or escape:find("[\\\"'\n]") then
      parts[#parts + 1], at = ESCAPES[escape] or escape, stop + 2
    else
      self:fail("the escape \\" .. escape .. " is not known here")
    end
  end
end

--- The next token: its kind ("name", "string", "number", "end" or the sign itself) and its value.
function Parser:token()
  self:skip_blanks()
  local text, at = self.text, self.at
  local sign = text:sub(at, at)
  if sign == "" then return "end", "the end of the file" end
  if sign == '"' or sign == "'" then return "string", self:quoted(sign) end
  local after, content = self:long_bracket(at)
  if after then
    self:advance(after)
    return "string", content
  end
  local name = text:match("^[%a_][%w_]*", at)
  local number = not name and text:match("^%-?%d[%w.]*", at)
  self:advance(at + #(name or number or sign))
  if name then return "name", name end
  if number then
    if not tonumber(number) then self:fail(number .. " is no number") end
    return "number", tonumber(number)
  end
  return sign, sign
end

function Parser:peek()
  if not self.next_kind then
    self.next_kind, self.next_value = self:token()
  end
  return self.next_kind, self.next_value
end

function Parser:take()
  local kind, value = self:peek()
  self.next_kind, self.next_value = nil, nil
  return kind, value
end

function Parser:expect(kind, where)
  local found, value = self:take()
  if found ~= kind then self:fail(("%s where %s is expected%s"):format(tostring(value), where or kind, DATA)) end
  return value
end

--- A value; a name that stands for one is an undefined global, which is nil.
function Parser:value(depth)
  local kind, value = self:take()
  if kind == "string" or kind == "number" then return value end
  if kind == "{" then return self:table_fields(depth + 1) end
  if kind ~= "name" then self:fail(tostring(value) .. " where a value is expected") end
  if value == "true" or value == "false" then return value == "true" end
  if value == "function" or value == "not" then self:fail(value .. " where a value is expected" .. DATA) end
  return nil
end

--- The fields of a table after its brace: `map` by name with their lines, `list` in order.
function Parser:table_fields(depth)
  if depth > DEPTH_MAX then self:fail(("tables are nested more than %d deep"):format(DEPTH_MAX)) end
  local fields = { map = {}, lines = {}, names = {}, list = {}, line = self.line }
  while self:peek() ~= "}" do
    self:field(fields, depth)
    local kind, value = self:peek()
    if kind == "," or kind == ";" then
      self:take()
    elseif kind ~= "}" then
      self:fail(tostring(value) .. " where , or } is expected" .. DATA)
    end
  end
  self:take()
  return fields
end

function Parser:field(fields, depth)
  local kind, key = self:peek()
  if kind == "[" then
    self:take()
    key = self:expect("string", "a name in quotes")
    self:expect("]")
    self:expect("=")
  elseif kind == "name" then
    self:take()
    if self:take() ~= "=" then self:fail(key .. " where a field = value or a table is expected" .. DATA) end
  else
    fields.list[#fields.list + 1] = self:value(depth)
    return
  end
  if fields.lines[key] then self:fail(("%s is given twice"):format(key)) end
  local line = self.line
  fields.map[key], fields.lines[key] = self:value(depth), line
  fields.names[#fields.names + 1] = key
end

--- Ends with the line of `key` when `fields` have others than `allowed`.
function Parser:only(fields, allowed, what)
  for _, key in ipairs(fields.names) do
    if not allowed[key] then
      self.line = fields.lines[key]
      self:fail(("%s has no field %s"):format(what, key))
    end
  end
end

--- The word of a field, which has to be one of `words`.
function Parser:word(fields, key, words, missing, what)
  local value = fields.map[key]
  if value == nil then value = missing end
  if type(value) ~= "string" or not words[value] then
    self.line = fields.lines[key] or fields.line
    local known = {}
    for word in pairs(words) do known[#known + 1] = word end
    table.sort(known)
    local shown = type(value) == "table" and "a table" or tostring(value)
    self:fail(("%s: %s is %s; it has to be one of %s"):format(what, key, shown, table.concat(known, ", ")))
  end
  return value
end

function Parser:method(name, fields, line)
  local what = "method " .. name:sub(1, NAME_BYTES_MAX)
  self.line = line
  if #name > NAME_BYTES_MAX or not name:find("^[%a_][%w_]*$") then
    self:fail(("%s: a name has letters, digits and _, at most %d of them"):format(what, NAME_BYTES_MAX))
  end
  if type(fields) ~= "table" then self:fail(what .. " has to be a table") end
  self:only(fields, { resulttype = true, args = true }, what)
  local method = { name = name, inputs = {}, outputs = {} }
  method.result = self:word(fields, "resulttype", TYPES, "void", what)
  local arguments = fields.map.args or { list = {}, names = {}, lines = {} }
  self.line = fields.lines.args or line
  if type(arguments) ~= "table" then self:fail(what .. ": args has to be a table") end
  self:only(arguments, {}, what .. ": args")
  if #arguments.list > ARGUMENTS_MAX then
    self:fail(("%s has %d arguments; %d are the limit"):format(what, #arguments.list, ARGUMENTS_MAX))
  end
  for position, argument in ipairs(arguments.list) do
    local place = ("%s, argument %d"):format(what, position)
    if type(argument) ~= "table" then self:fail(place .. " has to be a table") end
    self:only(argument, { direction = true, type = true }, place)
    local direction = self:word(argument, "direction", DIRECTIONS, nil, place)
    local kind = self:word(argument, "type", TYPES, nil, place)
    if direction ~= "out" then table.insert(method.inputs, kind) end
    if direction ~= "in" then table.insert(method.outputs, kind) end
  end
  return method
end

function Parser:interface()
  if self:expect("name", "interface") ~= "interface" then
    self:fail("the file has to begin with interface { … }" .. DATA)
  end
  local bracketed = self:peek() == "("
  if bracketed then self:take() end
  self:expect("{")
  local fields = self:table_fields(1)
  if bracketed then self:expect(")") end
  if self:peek() == ";" then self:take() end
  self:expect("end", "the end of the file")
  self:only(fields, { name = true, methods = true }, "interface")
  self.line = fields.lines.methods or fields.line
  local methods = fields.map.methods
  if type(methods) ~= "table" or #methods.list > 0 then self:fail("interface has no table of named methods") end
  if #methods.names > METHODS_MAX then
    self:fail(("%d methods; %d are the limit"):format(#methods.names, METHODS_MAX))
  end
  local found = { name = fields.map.name, methods = {}, names = methods.names }
  if type(found.name) ~= "string" then found.name = nil end
  for _, name in ipairs(methods.names) do
    found.methods[name] = self:method(name, methods.map[name], methods.lines[name])
  end
  return found
end

--- Reads an interface from a file, or from a text: what has a `{` in it is a text.
function interface.read(file_or_text)
  if type(file_or_text) ~= "string" then error("luarpc: an interface is the name of a file, or its text", 0) end
  local text, place = file_or_text, "interface"
  if not text:find("{", 1, true) then
    place = file_or_text
    local file, reason = io.open(place, "rb")
    if not file then error(("luarpc: interface file %s"):format(reason), 0) end
    text, reason = file:read(FILE_BYTES_MAX + 1)
    file:close()
    if not text then error(("luarpc: interface file %s: %s"):format(place, reason or "it is empty"), 0) end
  end
  if #text > FILE_BYTES_MAX then
    error(("luarpc: %s is longer than %d bytes, the limit of interface files"):format(place, FILE_BYTES_MAX), 0)
  end
  local parser = setmetatable({ text = text, place = place, at = 1, line = 1 }, Parser)
  local ok, result = pcall(Parser.interface, parser)
  if ok then return result end
  error("luarpc: " .. (type(result) == "table" and result.luarpc or tostring(result)), 0)
end

return interface
