--- Proxies: tables whose functions are the methods of an interface, called on a server.

local socket = require "socket"
local interface_files = require "luarpc.interface"
local lines = require "luarpc.lines"
local options = require "luarpc.options"

local proxy = {}

local unpack = table.unpack or unpack -- a global until Lua 5.1
local now = socket.gettime -- LuaSocket has no monotonic clock: a clock that jumps ends waits early or late, once

local PORTS_WAIT_SECONDS = 0.05 -- between attempts to connect while the machine has no free port
local CHUNK_BYTES = 8192 -- what LuaSocket buffers

local states = setmetatable({}, { __mode = "k" }) -- of proxies, whose own fields are methods

local function network_error(state, name, message)
  error(("%s%s, %s: %s"):format(lines.NETWORK_ERROR, state.peer, name, message), 0)
end

local function disconnect(state)
  local connection = state.connection
  state.connection = nil
  if not connection then return end
  -- A reset leaves no port in TIME_WAIT on either side. Nothing is lost: the answer is here, or is no longer wanted.
  connection.socket:setoption("linger", { on = true, timeout = 0 })
  connection.socket:close()
end

local CLOSED_WHILE_CONNECTING = "the server closed the connection during option connected"

local REMEDIES = {
  ["connection refused"] = "connection refused; is a server running there?",
  timeout = "no connection in time; is the address right, does a firewall drop packets (option seconds)?",
}

local function connect(state, name, deadline)
  if state.is_connecting then network_error(state, name, CLOSED_WHILE_CONNECTING) end
  while true do
    local stream = assert(socket.tcp())
    stream:settimeout(math.max(0, deadline - now()))
    local ok, reason = stream:connect(state.host, state.port)
    if ok then
      local _, own_port = stream:getsockname()
      -- Without a server a connection to a port of the dynamic range may meet itself.
      if tonumber(own_port) ~= state.port then
        stream:setoption("tcp-nodelay", true)
        state.connection = { socket = stream, reader = lines.new_reader(state.options.line_bytes) }
        return
      end
      reason = "connection refused"
    end
    stream:close()
    local is_out_of_ports = tostring(reason):lower():find("assign requested address", 1, true)
    if not is_out_of_ports or now() + PORTS_WAIT_SECONDS >= deadline then
      network_error(state, name, REMEDIES[reason] or tostring(reason))
    end
    socket.sleep(PORTS_WAIT_SECONDS)
  end
end

--- A connection for the next request; its second result tells whether it has been used before.
local function prepare(state, name, deadline)
  local connection = state.connection
  if connection then
    connection.socket:settimeout(0)
    local _, reason, part = connection.socket:receive(1)
    if reason == "timeout" and part == "" then return connection, true end
    disconnect(state)
  end
  connect(state, name, deadline)
  if state.options.connected then
    state.is_connecting = true
    local ok, reason = pcall(state.options.connected, state.methods)
    state.is_connecting = false
    if not ok then
      disconnect(state)
      error(reason, 0)
    end
    if not state.connection then network_error(state, name, CLOSED_WHILE_CONNECTING) end
  end
  return state.connection, false
end

--- Waits until `deadline` for bytes. LuaSocket's own lines have no limit and lose each \r.
local function fill(connection, deadline)
  local stream = connection.socket
  stream:settimeout(math.max(0, deadline - now()))
  local first, reason = stream:receive(1)
  if not first then return nil, reason end
  stream:settimeout(0)
  local rest, _, part = stream:receive(CHUNK_BYTES - 1)
  lines.feed(connection.reader, first .. (rest or part or ""))
  return true
end

--- The lines of an answer, or nil, why, and whether a byte of it has come.
local function receive_lines(connection, count, deadline)
  local answer, reader = {}, connection.reader
  while #answer < count do
    local line, reason = lines.next_line(reader)
    if line then
      answer[#answer + 1] = line
      if #answer == 1 and lines.error_of(line) then break end
    else
      local filled
      if not reason then filled, reason = fill(connection, deadline) end
      if not filled then return nil, reason, #answer > 0 or lines.has_rest(reader) end
    end
  end
  return answer
end

local function why_no_answer(state, reason, has_begun)
  if reason == "timeout" then
    return ("no whole answer after %g s (option seconds); whether the call ran is not known"):format(state.options.seconds)
  end
  if reason ~= "closed" then return reason end
  if has_begun then return "the server closed the connection within its answer" end
  return "the server closed the connection without an answer; whether the call ran is not known. "
    .. 'Does it close after each answer (profile = "close"), or keep fewer connections than there are clients (pool)?'
end

--- Sends a request and returns the lines of its answer. A request is sent again only when the server cannot have begun
--- it, because the connection broke before its last byte was handed over; or when the method may run twice.
local function exchange(state, method, request, count)
  local name, deadline = method.name, now() + state.options.seconds
  for attempt = 1, 2 do
    local connection, is_used = prepare(state, name, deadline)
    connection.socket:settimeout(math.max(0, deadline - now()))
    local sent, reason = connection.socket:send(request)
    local answer, has_begun
    if sent then
      answer, reason, has_begun = receive_lines(connection, count, deadline)
      if answer then
        if state.options.profile == "close" and not state.is_connecting or lines.has_rest(connection.reader) then
          disconnect(state)
        end
        return answer
      end
    end
    disconnect(state)
    local may_repeat = is_used and not has_begun and reason == "closed" and (not sent or state.repeatable(name))
    if attempt == 2 or not may_repeat then network_error(state, name, why_no_answer(state, reason, has_begun)) end
  end
end

--- The request of a call; ends with an error in the caller's line when the arguments do not fit.
local function request_of(state, method, ...)
  local inputs, given = method.inputs, select("#", ...)
  if given ~= #inputs then
    error(("luarpc: %s, %s: %d arguments given, the interface has %d (%s)"):format(
      state.peer, method.name, given, #inputs, table.concat(inputs, ", ")), 3)
  end
  local request = { method.name }
  for position, kind in ipairs(inputs) do
    local line, reason = lines.encoders[kind]((select(position, ...)), state.options.chars)
    if line and #line > state.options.line_bytes then
      line, reason = nil, ("%d bytes; %d are the limit (option line_bytes)"):format(#line, state.options.line_bytes)
    end
    if not line then
      error(("luarpc: %s, %s, argument %d: %s"):format(state.peer, method.name, position, reason), 3)
    end
    request[position + 1] = line
  end
  request[#request + 1] = ""
  return table.concat(request, "\n")
end

local function new_call(state, method)
  local outputs = method.outputs
  return function(...)
    local request = request_of(state, method, ...)
    local answer = exchange(state, method, request, 1 + #outputs)
    local failure = lines.error_of(answer[1])
    if failure then error(("%s%s, %s: %s"):format(lines.RPC_ERROR, state.peer, method.name, failure), 0) end
    local values = {}
    for position, line in ipairs(answer) do
      local kind = position == 1 and method.result or outputs[position - 1]
      local value, reason = lines.decoders[kind](line, true)
      if reason ~= true then
        disconnect(state)
        network_error(state, method.name, ("line %d of the answer: %s"):format(position, reason))
      end
      values[position] = value
    end
    return unpack(values, 1, #answer)
  end
end

--- A table with the methods of the interface; it connects at the first call. A call returns the result, then the out
--- and inout arguments; it raises a string that begins with `___ERRORPC: ` (the server refused or failed) or
--- `___ERRONET: ` (it was not reached, or answered wrongly).
function proxy.create(host, port, interface_file, given)
  if type(host) ~= "string" or host == "" then error("luarpc: createProxy has no address", 0) end
  local interface = interface_files.read(interface_file)
  local state = { host = host, port = options.port(port, 1), options = options.check(given, "createProxy") }
  state.peer = (host:find(":", 1, true) and "[%s]:%d" or "%s:%d"):format(host, state.port)
  local repeatable, names = state.options.repeatable, {}
  for _, name in ipairs(type(repeatable) == "table" and repeatable or {}) do names[name] = true end
  function state.repeatable(name) return repeatable == true or names[name] end
  local methods = {}
  for name, method in pairs(interface.methods) do methods[name] = new_call(state, method) end
  state.methods = setmetatable(methods, {
    __index = function(_, name)
      error(("luarpc: interface %s has no method %s; it has %s"):format(
        interface.name or interface_file:match("^[^\n]*"), tostring(name), table.concat(interface.names, ", ")), 2)
    end,
  })
  states[methods] = state
  return methods
end

--- Closes the connection of a proxy; its next call makes another.
function proxy.close(methods)
  local state = states[methods] or error("luarpc: close wants a proxy of createProxy", 2)
  disconnect(state)
end

return proxy
