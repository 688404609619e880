--- A server or a client of the laboratory's measurement of remote calls, in Lua; calls/load.rs has the words of all.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/?.lua;" .. package.path
local luarpc = require "luarpc"
local socket = require "socket"

local INTERFACE = here .. "/interface.lua"
local CALL_SECONDS = 5
local LATENCIES_MAX = 1000000

local function serve(address, profile, seconds)
  local object = {}
  function object.boo(number) return nil, number end
  function object.foo(one, other) return one + other, "text" end
  local servant = luarpc.createServant(object, INTERFACE, 0, { address = address, profile = profile })
  print(servant.port)
  io.stdout:flush()
  luarpc.waitIncoming(seconds)
end

--- A call with its answer looked at.
local function caller(proxy, method)
  if method == "boo" then
    return function()
      local _, number = proxy.boo(1)
      if number ~= 1 then error("boo answered " .. tostring(number), 0) end
    end
  end
  return function()
    local sum, text = proxy.foo(1, 2)
    if sum ~= 3 or text ~= "text" then error("foo answered " .. tostring(sum), 0) end
  end
end

--- Milliseconds that `share` of the calls took at most.
local function percentile(sorted, share)
  return (sorted[math.max(1, math.ceil(#sorted * share))] or 0) * 1000
end

local function call(host, port, profile, method, seconds, is_timed)
  local proxy = luarpc.createProxy(host, port, INTERFACE, { profile = profile, seconds = CALL_SECONDS })
  local once = caller(proxy, method)
  local calls, errors, said, latencies, now = 0, 0, "", {}, socket.gettime
  pcall(once) -- connects
  local processor, begun = os.clock(), now()
  local time = begun
  while time - begun < seconds do
    local before = time
    local ok, message = pcall(once)
    time = now()
    if ok then
      calls = calls + 1
      if is_timed and calls <= LATENCIES_MAX then latencies[calls] = time - before end
    else
      errors, said = errors + 1, tostring(message)
    end
  end
  processor = os.clock() - processor
  table.sort(latencies)
  print(("%d %d %.6f %.6f %.6f %.6f %.6f %s"):format(calls, errors, time - begun, processor,
    percentile(latencies, 0.50), percentile(latencies, 0.95), percentile(latencies, 0.99), (said:gsub("\n", " "))))
end

if arg[1] == "server" then
  serve(arg[3], arg[4], tonumber(arg[5]))
else
  call(arg[3], tonumber(arg[4]), arg[5], arg[6], tonumber(arg[7]), arg[8] == "timed")
end
