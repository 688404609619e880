--- Options of createProxy and createServant, their defaults and limits.

local options = {}

--- What each option is unless it is given.
local DEFAULTS = {
  profile = "keepalive", -- or "close": one connection a call
  seconds = 30, -- a whole call of a proxy; on a server a request that has begun, or an answer that is not taken
  idle_seconds = 300, -- a server closes a connection that has been silent for so long after an answer
  line_bytes = 1024 * 1024, -- one argument or result as it travels, quoted
  chars = "quoted", -- how a char is written unless the peer has shown the other way: "quoted" or "bare"
  address = "*", -- where a servant listens; "127.0.0.1" for this machine alone
  pool = 3, -- connections that a server keeps after their first answer, as the libraries of the study have it
  repeatable = false, -- methods that may run twice: a table of names, or true for all
  connected = false, -- called with the proxy after each connecting, before the call that needed it
}

local POOL_MAX = 512 -- select() knows 1,024 descriptors, and the program has others

--- The options of `what` as given, completed; ends with an error that names the wrong one.
function options.check(given, what)
  local checked = {}
  for key, value in pairs(DEFAULTS) do checked[key] = value end
  for key, value in pairs(given or {}) do
    if DEFAULTS[key] == nil then
      error(("luarpc: %s has no option %q; see docs/remote-calls.md"):format(what, tostring(key)), 0)
    end
    checked[key] = value
  end
  local function must(condition, key, form)
    if not condition then
      error(("luarpc: option %s of %s is %s; it has to be %s"):format(key, what, tostring(checked[key]), form), 0)
    end
  end
  must(checked.profile == "keepalive" or checked.profile == "close", "profile", '"keepalive" or "close"')
  must(checked.chars == "quoted" or checked.chars == "bare", "chars", '"quoted" or "bare"')
  must(type(checked.address) == "string", "address", "a text")
  for _, key in ipairs { "seconds", "idle_seconds", "line_bytes" } do
    local value = checked[key]
    must(type(value) == "number" and value > 0 and value < math.huge, key, "a number above 0")
  end
  local pool = checked.pool
  must(type(pool) == "number" and pool >= 1 and pool <= POOL_MAX, "pool", "a number from 1 to " .. POOL_MAX)
  must(not checked.connected or checked.profile == "keepalive", "connected", 'absent with profile "close"')
  return checked
end

--- `port` as a number of at least `from`.
function options.port(port, from)
  local number = tonumber(port)
  if not number or number % 1 ~= 0 or number < from or number > 65535 then
    error(("luarpc: port %s is no number from %d to 65535"):format(tostring(port), from), 0)
  end
  return math.floor(number)
end

return options
