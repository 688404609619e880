--- Remote calls over TCP by the LuaRPC protocol, for Lua 5.1 to 5.4 and LuaJIT with LuaSocket.
--
-- docs/remote-calls.md of Vazão has the protocol, options and examples. It encrypts nothing and knows no users: what a
-- servant offers is offered to each program that reaches its port.

local interface = require "luarpc.interface"
local proxy = require "luarpc.proxy"
local server = require "luarpc.server"

return {
  --- createProxy(address, port, interface_file [, options]): a table with the interface's methods.
  createProxy = proxy.create,
  --- close(proxy): closes its connection; the next call makes another.
  close = proxy.close,
  --- createServant(object, interface_file [, port [, options]]): a servant with `address`, `port` and `close`.
  createServant = server.create,
  --- waitIncoming([seconds]): serves all servants of this program, until none is left or the time is over.
  waitIncoming = server.wait,
  --- readInterface(file_or_text): checks an interface, and returns it as a table.
  readInterface = interface.read,
}
