rockspec_format = "3.0"
package = "luarpc"
version = "scm-1"
-- For `luarocks make` in this directory, within a checkout.
source = {
  url = ".",
}
description = {
  summary = "Remote calls over TCP by the LuaRPC protocol",
  detailed = [[
    Servants and proxies in pure Lua over LuaSocket. Interfaces are files that are read as data. Every line, wait and
    number of connections has a limit. Works with the other implementations of the protocol, in both profiles.
  ]],
  license = "Apache-2.0",
}
dependencies = {
  "lua >= 5.1, < 5.5",
  "luasocket >= 3.0",
}
build = {
  type = "builtin",
  modules = {
    luarpc = "luarpc.lua",
    ["luarpc.interface"] = "luarpc/interface.lua",
    ["luarpc.lines"] = "luarpc/lines.lua",
    ["luarpc.options"] = "luarpc/options.lua",
    ["luarpc.proxy"] = "luarpc/proxy.lua",
    ["luarpc.server"] = "luarpc/server.lua",
  },
}
