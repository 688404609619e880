"""Remote calls over TCP by the LuaRPC protocol, client and server, without dependencies.

docs/remote-calls.md of Vazão has the protocol, options and examples. It encrypts nothing and knows no users: what a
server offers is offered to each program that reaches its port.
"""

from .errors import InterfaceError, NetworkError, RpcError
from .interface import Interface, Method, read_interface
from .proxy import Proxy, close, proxy
from .server import Server

__all__ = [
    "Interface",
    "InterfaceError",
    "Method",
    "NetworkError",
    "Proxy",
    "RpcError",
    "Server",
    "close",
    "proxy",
    "read_interface",
]
