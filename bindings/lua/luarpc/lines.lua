--- Values as they stand on a line, and the lines of a connection.

local lines = {}

--- More than `%f` makes of the largest double; the patterns that check numbers are slow on long ones.
local NUMBER_BYTES_MAX = 400

--- Of a line that comes in little pieces.
local PIECES_MAX = 256

lines.RPC_ERROR = "___ERRORPC: "
lines.NETWORK_ERROR = "___ERRONET: "

--- A text of the peer as it may stand in a message.
local function shown(text)
  local short = text:sub(1, 40):gsub("[%c\127-\255]", "?")
  return #text > 40 and short .. "…" or short
end

local WRITTEN = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }
local READ = { ["\\"] = "\\", ['"'] = '"', n = "\n" }

local function quote(text) return '"' .. text:gsub('[\\"\n]', WRITTEN) .. '"' end

local function unquote(line)
  if #line < 2 or line:sub(1, 1) ~= '"' or line:sub(-1) ~= '"' then
    return nil, shown(line) .. " is not in double quotes"
  end
  local inner = line:sub(2, -2)
  if not inner:find('[\\"]') then return inner end
  if inner:gsub('\\[\\"n]', ""):find('[\\"]') then
    return nil, shown(line) .. ' has a " or \\ without a \\ before it'
  end
  return (inner:gsub('\\([\\"n])', READ))
end

local encoders, decoders = {}, {}
lines.encoders, lines.decoders = encoders, decoders

function encoders.void() return "nil" end

function encoders.string(value)
  if type(value) ~= "string" then return nil, type(value) .. " where a string is expected" end
  return quote(value)
end

function encoders.char(value, chars)
  if type(value) ~= "string" or #value ~= 1 then
    local found = type(value) == "string" and ("a string of %d bytes"):format(#value) or type(value)
    return nil, found .. " where a char, a string of one byte, is expected"
  end
  -- Bare, these three would end the line, be lost with it or look like the beginning of a string.
  if chars == "bare" and not value:find('[\n\r"]') then return value end
  return quote(value)
end

function encoders.double(value)
  if type(value) ~= "number" then return nil, type(value) .. " where a double is expected" end
  if value == 0 then return 1 / value < 0 and "-0.0" or "0" end
  if value % 1 == 0 and value > -2 ^ 31 and value < 2 ^ 31 then return ("%d"):format(value) end
  if value ~= value or value >= math.huge or value <= -math.huge then
    return nil, "a number that is not finite cannot be sent"
  end
  -- An integer of Lua 5.3 that a double cannot hold would arrive as another number.
  if math.type and math.type(value) == "integer" and math.tointeger(value + 0.0) ~= value then
    return nil, ("the integer %d does not fit a double; send it as a string"):format(value)
  end
  local text = ("%.14g"):format(value)
  if tonumber(text) ~= value then text = ("%.17g"):format(value) end
  return (text:gsub(",", ".")) -- a locale may have a comma
end

--- Decoders return the value and true, or nil and what is wrong; `nil` on the line is nil and true where `optional`.
local function stripped(line) return line:sub(-1) == "\r" and line:sub(1, -2) or line end

function decoders.void() return nil, true end

function decoders.string(line, optional)
  line = stripped(line)
  if line == "nil" and optional then return nil, true end
  local value, reason = unquote(line)
  if value then return value, true end
  return nil, reason
end

--- Its third result is the way in which the peer wrote it.
function decoders.char(line, optional)
  if #line == 1 then return line, true, "bare" end
  line = stripped(line)
  if #line == 1 then return line, true, "bare" end
  if line == "nil" and optional then return nil, true end
  -- Some peers quote a char without escaping it.
  local value = #line == 3 and line:match('^"(.)"$') or unquote(line)
  if value and #value == 1 then return value, true, "quoted" end
  return nil, shown(line) .. " is no char: one byte, bare or in double quotes"
end

function decoders.double(line, optional)
  line = stripped(line)
  if #line > NUMBER_BYTES_MAX then return nil, "a number of more than " .. NUMBER_BYTES_MAX .. " bytes" end
  local digits = line:match("^[+-]?(%d*%.?%d*)$") or line:match("^[+-]?(%d*%.?%d*)[eE][+-]?%d+$")
  if not digits or not digits:find("%d") then
    if line == "nil" and optional then return nil, true end
    return nil, shown(line) .. " is no decimal number"
  end
  -- Until Lua 5.2 numbers are read as the locale has them.
  local value = tonumber(line) or tonumber((line:gsub("%.", ",")))
  if not value then return nil, shown(line) .. " is no decimal number" end
  value = value * 1.0
  if value >= math.huge or value <= -math.huge then return nil, shown(line) .. " is out of the range of a double" end
  -- Whole numbers print alike in all versions of Lua; -0.0 has no integer.
  if math.tointeger and value % 1 == 0 and value > -2 ^ 53 and value < 2 ^ 53 and 1 / value ~= -math.huge then
    value = math.tointeger(value)
  end
  return value, true
end

--- The text of an error that stands in the place of a result, bare or quoted.
function lines.error_of(line)
  if line:sub(1, 11) ~= "___ERRORPC:" and line:sub(1, 12) ~= '"___ERRORPC:' then return nil end
  line = stripped(line)
  local text = line:sub(1, 1) == '"' and (unquote(line) or line:sub(2)) or line
  return (text:gsub("^___ERRORPC: ?", ""))
end

--- Bytes that have come and have not been taken as lines.
function lines.new_reader(line_bytes)
  return { data = "", at = 1, pieces = {}, bytes = 0, line_bytes = line_bytes }
end

--- Whether bytes have come that no line has taken.
function lines.has_rest(reader) return reader.bytes > 0 or reader.at <= #reader.data end

function lines.feed(reader, data)
  reader.data, reader.at = reader.at <= #reader.data and reader.data:sub(reader.at) .. data or data, 1
end

--- The next line without its end; nil when it has not come whole; nil and a reason when it is too long.
function lines.next_line(reader)
  local data, at, pieces = reader.data, reader.at, reader.pieces
  local stop = data:find("\n", at, true)
  local piece = data:sub(at, stop and stop - 1 or -1)
  if reader.bytes + #piece > reader.line_bytes then
    return nil, ("a line is longer than %d bytes (option line_bytes)"):format(reader.line_bytes)
  end
  if not stop then
    if #piece > 0 then pieces[#pieces + 1] = piece end
    -- Pieces of one byte each would take many times their size.
    if #pieces > PIECES_MAX then reader.pieces = { table.concat(pieces) } end
    reader.data, reader.at, reader.bytes = "", 1, reader.bytes + #piece
    return nil
  end
  reader.at = stop + 1
  if reader.bytes == 0 then return piece end
  pieces[#pieces + 1] = piece
  reader.pieces, reader.bytes = {}, 0
  return table.concat(pieces)
end

return lines
