--- The Lua library as a process that the suite drives: see implementations.py beside, which has the words of both sides.

package.path = "bindings/lua/?.lua;" .. package.path
local luarpc = require "luarpc"

local INTERFACE = "bindings/tests/suite.lua"
local NUMBERS = { seconds = true, idle_seconds = true, line_bytes = true, pool = true, port = true }

--- What the option connected gives to the method that it names.
local LOGIN = { boo = 1, fail = "not let in" }

local function unhex(text)
  return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function hex(text)
  return (text:gsub(".", function(char) return ("%02x"):format(char:byte()) end))
end

local function options_of(words, from)
  local options = {}
  for position = from, #words do
    local key, value = words[position]:match("^([^=]+)=(.*)$")
    options[key] = NUMBERS[key] and tonumber(value) or value
    if key == "repeatable" then options[key] = true end
    if key == "connected" then options[key] = function(proxy) proxy[value](LOGIN[value]) end end
    if key == "swallowing" then
      options[key] = nil
      options.connected = function(proxy) pcall(proxy[value], LOGIN[value]) end
    end
  end
  return options
end

local function words_of(line)
  local words = {}
  for word in line:gmatch("%S+") do words[#words + 1] = word end
  return words
end

-- The server --------------------------------------------------------------------------------------------------------

local boo_count = 0
local object = {}
function object.boo(number)
  boo_count = boo_count + 1
  return number
end
function object.add(one, other) return one + other end
function object.echo(text) return text end
function object.nothing() end
function object.char(char) return char end
function object.letter() return "x" end
function object.all(char, text, void, number)
  assert(void == nil)
  return number + 1, char, text .. char, number * 2, nil, text
end
function object.booCount() return boo_count end
function object.fail(message) error(message, 0) end
function object.returnsText() return "text" end
function object.returnsTooFew() return 1 end
function object.returnsInfinity() return math.huge end
function object.returnsAnError() return "___ERRORPC: not one" end
function object.long(bytes) return ("x"):rep(bytes) end

if arg[1] == "server" then
  local options = options_of(arg, 2)
  local port = options.port
  options.port = nil
  local ok, servant = pcall(luarpc.createServant, object, INTERFACE, port, options)
  print(ok and servant.port or "error " .. servant)
  io.stdout:flush()
  return luarpc.waitIncoming()
end

-- The client --------------------------------------------------------------------------------------------------------

local proxies = {}

local function value_of(word)
  local kind, rest = word:sub(1, 1), word:sub(2)
  if kind == "d" then return rest == "inf" and math.huge or tonumber(rest) end
  if kind == "s" then return unhex(rest) end
  if kind == "r" then return ("x"):rep(tonumber(rest)) end
  return nil
end

local function word_of(value)
  if type(value) == "number" then return ("d%.17g"):format(value) end
  return value == nil and "n" or "s" .. hex(value)
end

local function call(words)
  local arguments, count = {}, #words - 3
  for position = 1, count do arguments[position] = value_of(words[position + 3]) end
  local function pack(...)
    local answer = { "ok" }
    for position = 1, select("#", ...) do answer[position + 1] = word_of((select(position, ...))) end
    return table.concat(answer, " ")
  end
  return pack(proxies[words[2]][words[3]]((table.unpack or unpack)(arguments, 1, count)))
end

for line in io.lines() do
  local words = words_of(line)
  local ok, answer = pcall(function()
    if words[1] == "open" then
      proxies[words[2]] = luarpc.createProxy(words[3], words[4], INTERFACE, options_of(words, 5))
      return "ok"
    elseif words[1] == "close" then
      luarpc.close(proxies[words[2]])
      return "ok"
    end
    return call(words)
  end)
  print(ok and answer or "error " .. hex(tostring(answer)))
  io.stdout:flush()
end
