--- Servants: objects whose methods other programs call. One loop serves all servants of a program.
--
-- A connection reads requests, or writes an answer, or is being refused: then what comes is read and forgotten for
-- DRAIN_SECONDS, because closing at once would take the refusal away from a peer that is still writing. Methods run one
-- at a time, and nothing else is served meanwhile.

local socket = require "socket"
local interface_files = require "luarpc.interface"
local lines = require "luarpc.lines"
local options = require "luarpc.options"

local server = {}

local unpack = table.unpack or unpack -- a global until Lua 5.1
local now = socket.gettime -- LuaSocket has no monotonic clock: a clock that jumps ends waits early or late, once

local DESCRIPTORS_MAX = 1024 -- select() knows no higher descriptors
local BACKLOG = 128
local CHUNK_BYTES = 8192 -- what LuaSocket buffers
local ERROR_BYTES_MAX = 1024 -- of an error's text on the wire
local FRESH_MAX = 64 -- connections without an answer yet; pools are of those that have had one
local GRACE_SECONDS = 0.1 -- so long a new one is not closed for another
local DRAIN_SECONDS = 1 -- a peer that is being refused gets so long to read why
local TICK_SECONDS = 0.25 -- how often deadlines are looked at, and the pause after a failed accept

local servants = {}
local connections = {} -- by socket
local listeners = {} -- servants by socket
local is_waiting = false

--- The sockets that are waited for; nil when it has to be made again.
local read_set, write_set

local function forget_sets() read_set, write_set = nil, nil end

-- Connections -------------------------------------------------------------------------------------------------------

local function remove(list, entry)
  for position, other in ipairs(list) do
    if other == entry then return table.remove(list, position) end
  end
end

local function drop(connection)
  if connection.is_gone then return end
  connection.is_gone = true
  connections[connection.socket] = nil
  connection.servant.pause_until = nil
  remove(connection.servant.fresh, connection)
  remove(connection.servant.pool, connection)
  connection.socket:close()
  forget_sets()
end

local receive

--- Takes a connection that has its first answer into the pool, from which the oldest goes for it.
local function keep(connection)
  local servant = connection.servant
  connection.is_kept = true
  remove(servant.fresh, connection)
  table.insert(servant.pool, connection)
  if servant.pause_until then
    servant.pause_until = nil
    forget_sets()
  end
  if #servant.pool > servant.options.pool then
    local oldest = servant.pool[1]
    -- Its next request may have come and not been read; the server that closes now has not begun it.
    if not oldest.is_refused and not oldest.out then receive(oldest) end
    drop(oldest)
  end
end

--- What comes after an answer: the next request, or the end.
local function answered(connection)
  if connection.is_refused then
    connection.socket:shutdown("send")
    connection.until_time = now() + DRAIN_SECONDS
    forget_sets()
  elseif connection.servant.options.profile == "close" then
    drop(connection)
  else
    connection.until_time = now() + connection.servant.options.idle_seconds
    if not connection.is_kept then keep(connection) end
  end
end

--- Hands over what of the answer the peer takes now.
local function flush(connection)
  local text = connection.out
  local last, reason, sent = connection.socket:send(text, connection.sent + 1)
  if last == #text then
    if connection.is_blocked then forget_sets() end
    connection.out, connection.is_blocked = nil, nil
    return answered(connection)
  end
  if reason ~= "timeout" then return drop(connection) end
  connection.sent = sent
  if not connection.is_blocked then
    connection.is_blocked = true
    connection.until_time = now() + connection.servant.options.seconds
    forget_sets()
  end
end

local function answer(connection, text)
  connection.out, connection.sent = text, 0
  connection.method, connection.values = nil, nil
  connection.has_answer = true
  flush(connection)
end

local function error_line(message)
  local text = tostring(message):gsub("[\r\n]+", " ")
  return lines.RPC_ERROR .. text:sub(1, ERROR_BYTES_MAX) .. "\n"
end

--- Answers with an error after which the next line cannot be told: the connection ends.
local function refuse(connection, message)
  connection.is_refused = true
  answer(connection, error_line(message))
end

-- Calls -------------------------------------------------------------------------------------------------------------

local function pack(...) return { n = select("#", ...), ... } end

--- The values of an answer in order, the result first; nil and why when the method returned others.
local function values_of(method, returned)
  local outputs, count = #method.outputs, returned.n - 1
  if method.result ~= "void" then
    if count ~= 1 + outputs then
      return nil, ("%s returned %d values; the interface has %d"):format(method.name, count, 1 + outputs)
    end
    return { unpack(returned, 2, returned.n) }
  end
  if outputs == 0 then return {} end
  -- A method without a result returns its out arguments, with or without a nil before them.
  local skipped = count == 1 + outputs and returned[2] == nil and 1 or 0
  if count - skipped ~= outputs then
    return nil, ("%s returned %d values; the interface has %d"):format(method.name, count, outputs)
  end
  return { nil, unpack(returned, 2 + skipped, returned.n) }
end

local function answer_lines(method, values, chars, line_bytes)
  local texts = {}
  for position = 1, 1 + #method.outputs do
    local kind = position == 1 and method.result or method.outputs[position - 1]
    local line, reason = lines.encoders[kind](values[position], chars)
    if line and #line > line_bytes then
      line, reason = nil, ("%d bytes; %d are the limit (option line_bytes)"):format(#line, line_bytes)
    elseif line and position == 1 and lines.error_of(line) then
      line, reason = nil, "a result may not begin as an error does"
    end
    if not line then
      return nil, ("%s returned for %s: %s"):format(method.name,
        position == 1 and "its result" or "out argument " .. position - 1, reason)
    end
    texts[position] = line
  end
  texts[#texts + 1] = ""
  return table.concat(texts, "\n")
end

local function run(connection)
  local servant, method = connection.servant, connection.method
  local returned = pack(pcall(servant.object[method.name], unpack(connection.values, 1, #method.inputs)))
  -- The method may have closed its servant.
  if connection.is_gone then return end
  if not returned[1] then return answer(connection, error_line(returned[2])) end
  local values, reason = values_of(method, returned)
  local text
  if values then
    text, reason = answer_lines(method, values, connection.chars, servant.options.line_bytes)
  end
  answer(connection, text or error_line(reason))
end

--- The first line of a request.
local function begin(connection, line)
  local name = line:gsub("\r$", "")
  local method = connection.servant.interface.methods[name]
  if not method then
    local short = name:sub(1, 64):gsub("[%c\127-\255]", "?")
    return refuse(connection, ("there is no method %s; there are %s"):format(
      short, table.concat(connection.servant.interface.names, ", ")))
  end
  connection.method, connection.values, connection.count = method, {}, 0
  connection.until_time = now() + connection.servant.options.seconds
  if #method.inputs == 0 then run(connection) end
end

local function take_argument(connection, line)
  local method, position = connection.method, connection.count + 1
  local value, reason, chars = lines.decoders[method.inputs[position]](line, false)
  connection.chars = chars or connection.chars
  connection.values[position], connection.count = value, position
  if reason ~= true and not connection.wrong then
    connection.wrong = ("%s, argument %d: %s"):format(method.name, position, reason)
  end
  if position < #method.inputs then return end
  local wrong = connection.wrong
  connection.wrong = nil
  if wrong then return answer(connection, error_line(wrong)) end
  run(connection)
end

--- Serves the requests that have come whole, as long as their answers are taken.
local function serve(connection)
  local reader = connection.reader
  while not (connection.is_gone or connection.is_refused or connection.out) do
    local line, reason = lines.next_line(reader)
    if reason then return refuse(connection, reason) end
    if not line then
      -- Half a name is a request that has begun.
      if not connection.method and lines.has_rest(reader) and not connection.is_begun then
        connection.is_begun = true
        connection.until_time = now() + connection.servant.options.seconds
      end
      return
    end
    if connection.method then
      take_argument(connection, line)
    else
      connection.is_begun = false
      begin(connection, line)
    end
  end
end

function receive(connection)
  local data, reason, part = connection.socket:receive(CHUNK_BYTES)
  data = data or part
  if data and #data > 0 and not connection.is_refused then
    lines.feed(connection.reader, data)
    serve(connection)
  end
  if reason and reason ~= "timeout" and not connection.out then drop(connection) end
end

-- Accepting ---------------------------------------------------------------------------------------------------------

--- Makes room for one more connection that has not been answered; false while all of them are new.
local function make_room(servant)
  if #servant.fresh < FRESH_MAX then return true end
  local connection = servant.fresh[1]
  if now() < connection.protected_until then return false end
  -- Its request may have come and not been read.
  if not connection.is_refused and not connection.out then receive(connection) end
  if not connection.has_answer or connection.is_refused then drop(connection) end
  return true
end

local function accept(servant)
  if not make_room(servant) then
    servant.pause_until = servant.fresh[1].protected_until
    return forget_sets()
  end
  if not listeners[servant.socket] then return end -- a method that was run to make room has closed it
  local stream, reason = servant.socket:accept()
  if not stream then
    if reason == "timeout" then return end
    -- No descriptors, as a rule. The listener stays readable, and the loop would spin.
    servant.pause_until = now() + TICK_SECONDS
    return forget_sets()
  end
  if stream:getfd() >= DESCRIPTORS_MAX then return stream:close() end
  stream:settimeout(0)
  local time = now()
  local connection = {
    socket = stream, servant = servant, reader = lines.new_reader(servant.options.line_bytes),
    chars = servant.options.chars, protected_until = time + GRACE_SECONDS, until_time = time + servant.options.seconds,
  }
  if servant.options.profile == "keepalive" then stream:setoption("tcp-nodelay", true) end
  table.insert(servant.fresh, connection)
  connections[stream] = connection
  forget_sets()
  -- The request has often come with the connection.
  receive(connection)
end

-- The loop ----------------------------------------------------------------------------------------------------------

local function make_sets()
  local time = now()
  read_set, write_set = {}, {}
  for _, servant in ipairs(servants) do
    if not servant.pause_until or time >= servant.pause_until then
      servant.pause_until = nil
      read_set[#read_set + 1] = servant.socket
    end
  end
  for stream, connection in pairs(connections) do
    -- A peer that does not take its answers is not listened to.
    local set = connection.out and write_set or read_set
    set[#set + 1] = stream
  end
end

local function end_overdue(time)
  local overdue = {}
  for _, connection in pairs(connections) do
    if time >= connection.until_time then overdue[#overdue + 1] = connection end
  end
  for _, connection in ipairs(overdue) do
    local is_half = connection.method or lines.has_rest(connection.reader)
    if is_half and not connection.out and not connection.is_refused then
      refuse(connection, ("the request is not whole after %g s"):format(connection.servant.options.seconds))
    else
      drop(connection)
    end
  end
end

--- The end of the shortest pause of a listener, at most `seconds` away.
local function until_pauses_end(seconds)
  for _, servant in ipairs(servants) do
    if servant.pause_until then
      forget_sets()
      seconds = math.min(seconds, math.max(0, servant.pause_until - now()))
    end
  end
  return seconds
end

local function step(seconds)
  seconds = until_pauses_end(seconds)
  if not read_set then make_sets() end
  local readable, writable = socket.select(read_set, write_set, seconds)
  for _, stream in ipairs(writable) do
    local connection = connections[stream]
    if connection and connection.out then
      flush(connection)
      serve(connection)
    end
  end
  local callers
  for _, stream in ipairs(readable) do
    local connection = connections[stream]
    if connection then
      receive(connection)
    elseif listeners[stream] then
      callers = callers or {}
      callers[#callers + 1] = listeners[stream]
    end
  end
  -- After the requests, which may be those of connections that have to make room.
  for _, servant in ipairs(callers or {}) do
    if listeners[servant.socket] then accept(servant) end
  end
end

--- Serves all servants of this program until none is left, or until `seconds` are over.
function server.wait(seconds)
  if is_waiting then error("luarpc: waitIncoming runs already; a method must not call it", 2) end
  local until_time = seconds and now() + seconds or math.huge
  local next_tick = now() + TICK_SECONDS
  is_waiting = true
  local ok, reason = pcall(function()
    while #servants > 0 do
      local time = now()
      if time >= until_time then return end
      if time >= next_tick or next_tick > time + TICK_SECONDS then
        end_overdue(time)
        next_tick = time + TICK_SECONDS
      end
      step(math.min(TICK_SECONDS, until_time - time))
    end
  end)
  is_waiting = false
  if not ok then error(reason, 0) end
end

-- Servants ----------------------------------------------------------------------------------------------------------

local Servant = {}
Servant.__index = Servant

--- Stops listening and closes all connections of this servant.
function Servant:close()
  if not listeners[self.socket] then return end
  while self.pool[1] or self.fresh[1] do drop(self.pool[1] or self.fresh[1]) end
  listeners[self.socket] = nil
  for position, other in ipairs(servants) do
    if other == self then table.remove(servants, position) break end
  end
  self.socket:close()
  forget_sets()
end

local PORT_REMEDIES = {
  ["address already in use"] = "it is in use by another program; choose another, or 0 for a free one",
  ["permission denied"] = "ports below 1024 are for root; choose a higher one",
}

--- Offers the functions of `object` that the interface names; `port` 0 or nil is a free one. Returns a servant with
--- `address`, `port` and `close`. Requests are served by waitIncoming.
function server.create(object, interface_file, port, given)
  if type(port) == "table" and given == nil then port, given = nil, port end
  local checked = options.check(given, "createServant")
  local interface = interface_files.read(interface_file)
  for _, name in ipairs(interface.names) do
    local is_there, method = pcall(function() return object[name] end)
    if not is_there or method == nil then
      error(("luarpc: the object has no function %s, which its interface has"):format(name), 0)
    end
  end
  local number = options.port(port or 0, 0)
  local listener, reason = socket.bind(checked.address, number, BACKLOG)
  if not listener then
    error(("luarpc: cannot listen on %s:%d: %s"):format(checked.address, number, PORT_REMEDIES[reason] or reason), 0)
  end
  listener:settimeout(0)
  local address, own_port = listener:getsockname()
  local servant = setmetatable({
    socket = listener, address = address, port = tonumber(own_port), object = object, interface = interface,
    options = checked, fresh = {}, pool = {},
  }, Servant)
  table.insert(servants, servant)
  listeners[listener] = servant
  forget_sets()
  return servant
end

return server
