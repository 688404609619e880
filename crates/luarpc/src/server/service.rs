//! What a server serves: a service, and a session of it for each connection.

use crate::value::Value;
use std::net::SocketAddr;
use std::sync::Arc;

/// What is served.
pub trait Service: Send + Sync + 'static {
    /// A peer has connected: what answers it. Cheap; called by the thread that waits for all connections.
    fn connected(&self, peer: SocketAddr) -> Box<dyn Session>;

    /// True for methods that never wait, neither for a disk nor for a network nor for a lock that is held meanwhile.
    /// The waiting thread carries them out itself, which saves two changes of threads; all others wait for it.
    fn is_quick(&self, method: &str) -> bool {
        let _ = method;
        false
    }
}

/// What answers one connection. Its calls come one after the other.
pub trait Session: Send {
    /// Carries out a call with its `in` and `inout` arguments, whose types fit. Returns the result and then the `out`
    /// and `inout` arguments, or what the caller is told instead.
    fn call(&mut self, method: &str, arguments: Vec<Value>) -> Result<Vec<Value>, String>;
}

/// A service without sessions: one function that answers all.
pub struct Function<F> {
    function: Arc<F>,
    is_quick: bool,
}

impl<F: Fn(&str, Vec<Value>) -> Result<Vec<Value>, String> + Send + Sync + 'static> Function<F> {
    /// Serves `function`; `is_quick` as [`Service::is_quick`], for all methods.
    pub fn new(is_quick: bool, function: F) -> Function<F> {
        Function { function: Arc::new(function), is_quick }
    }
}

impl<F: Fn(&str, Vec<Value>) -> Result<Vec<Value>, String> + Send + Sync + 'static> Service for Function<F> {
    fn connected(&self, _peer: SocketAddr) -> Box<dyn Session> {
        Box::new(FunctionSession(Arc::clone(&self.function)))
    }

    fn is_quick(&self, _method: &str) -> bool {
        self.is_quick
    }
}

struct FunctionSession<F>(Arc<F>);

impl<F: Fn(&str, Vec<Value>) -> Result<Vec<Value>, String> + Send + Sync> Session for FunctionSession<F> {
    fn call(&mut self, method: &str, arguments: Vec<Value>) -> Result<Vec<Value>, String> {
        (self.0)(method, arguments)
    }
}
