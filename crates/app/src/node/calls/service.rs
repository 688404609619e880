//! Which call is answered by what, and who may call it.

use super::arguments::Arguments;
use super::secret::{self, Secret};
use super::section::DEADLINE_MS;
use super::{copies, files, overview};
use crate::failure::{Failure, Outcome};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::Client;
use vazao_luarpc::{Service, Session, Value};
use vazao_meter::Clock;
use vazao_model::Code;

/// Opens a client of the volume that the node belongs to.
pub(crate) type Opener = Box<dyn Fn() -> vazao_client::Result<Client> + Send + Sync>;

/// Methods that change something.
const CHANGING: [&str; 7] = ["write", "truncate", "mkdir", "rename", "remove", "copy_start", "copy_cancel"];

/// Methods that need no login: it is made of them.
const LOGIN: [&str; 2] = ["challenge", "login"];

/// What all connections share.
struct Shared {
    open: Opener,
    client: Mutex<Option<Client>>,
    may_write: bool,
    secret: Option<Secret>,
    clock: Arc<dyn Clock>,
}

/// What a node answers remote calls with.
pub(crate) struct Serving(Arc<Shared>);

impl Serving {
    pub(crate) fn new(
        open: Opener,
        may_write: bool,
        secret: Option<Secret>,
        clock: Arc<dyn Clock>,
    ) -> Serving {
        Serving(Arc::new(Shared { open, client: Mutex::default(), may_write, secret, clock }))
    }
}

impl Service for Serving {
    fn connected(&self, _peer: SocketAddr) -> Box<dyn Session> {
        Box::new(Caller { shared: Arc::clone(&self.0), challenge: None, is_known: self.0.secret.is_none() })
    }

    fn is_quick(&self, method: &str) -> bool {
        LOGIN.contains(&method)
    }
}

impl Shared {
    /// The client of all connections. It is opened at the first call: the metadata service may start later than this
    /// node.
    fn client(&self) -> Outcome<Client> {
        // Another call may be waiting for the metadata service: not all are to wait for it one after the other.
        let Some(mut client) = self.client.try_lock_for(Duration::from_millis(u64::from(DEADLINE_MS))) else {
            return Err(vazao_client::Error::new(Code::Unreachable, "metadata service").into());
        };
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let opened = (self.open)()?;
        *client = Some(opened.clone());
        Ok(opened)
    }
}

/// One connection.
struct Caller {
    shared: Arc<Shared>,
    /// The last challenge. One answer is taken for it, right or wrong.
    challenge: Option<String>,
    /// It has proven to know the secret, or there is none.
    is_known: bool,
}

impl Session for Caller {
    fn call(&mut self, method: &str, arguments: Vec<Value>) -> Result<Vec<Value>, String> {
        match method {
            "challenge" => return self.give_challenge(),
            "login" => return self.login(&arguments),
            _ => {}
        }
        self.check(method)?;
        let answered = answer(&self.shared, method, &Arguments::new(&arguments));
        answered
            .map_err(|failure| failure.message().unwrap_or("it failed; the node's log says why").to_owned())
    }
}

impl Caller {
    fn give_challenge(&mut self) -> Result<Vec<Value>, String> {
        let challenge = secret::challenge()?;
        self.challenge = Some(challenge.clone());
        Ok(vec![challenge.into()])
    }

    fn login(&mut self, arguments: &[Value]) -> Result<Vec<Value>, String> {
        let Some(secret) = &self.shared.secret else {
            return Err("this node has no secret for remote calls; leave the login out".to_owned());
        };
        let Some(challenge) = self.challenge.take() else {
            return Err("a login answers a challenge; call challenge() on this connection first".to_owned());
        };
        let proof = arguments.first().and_then(Value::bytes).unwrap_or_default();
        self.is_known = secret.is_proven(challenge.as_bytes(), proof);
        if self.is_known {
            return Ok(vec![Value::Nil]);
        }
        Err("the secret is another one than this node's; use the file that secret_file in its [luarpc] names"
            .to_owned())
    }

    fn check(&self, method: &str) -> Result<(), String> {
        if !self.is_known {
            return Err(format!(
                "{method}: this node answers callers that know its secret; log in first, with --secret-file or by \
                 challenge() and login(proof) on the same connection"
            ));
        }
        if !self.shared.may_write && CHANGING.contains(&method) {
            return Err(format!(
                "{method}: remote calls may only read from this node; write = true in [luarpc] of its node.toml allows more"
            ));
        }
        Ok(())
    }
}

fn answer(shared: &Shared, method: &str, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let client = &shared.client()?;
    let clock = &*shared.clock;
    match method {
        "list" => files::list(client, arguments),
        "list_page" => files::list_page(client, arguments),
        "stat" => files::stat(client, arguments),
        "read" => files::read(client, arguments),
        "write" => files::write(client, arguments),
        "truncate" => files::truncate(client, arguments),
        "mkdir" => files::mkdir(client, arguments),
        "rename" => files::rename(client, arguments),
        "remove" => files::remove(client, arguments),
        "status" => overview::status(client),
        "status_json" => overview::status_json(client),
        "limit" => overview::limit(client, arguments, clock),
        "copies" => copies::list(client),
        "copy_status" => copies::status(client, arguments),
        "copy_wait" => copies::wait(client, arguments, clock),
        "copy_start" => copies::start(client, arguments),
        "copy_cancel" => copies::cancel(client, arguments),
        other => Err(Failure::new(format!("{other}: the interface has this method, and the node does not"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_interface_is_answered_by_something() {
        // Without a client the methods are told apart by their errors.
        let unreachable =
            || Err(vazao_client::Error::new(vazao_model::Code::Unreachable, "metadata service"));
        let serving = Serving::new(Box::new(unreachable), true, None, vazao_meter::clock::system());
        let mut caller = serving.connected("127.0.0.1:1".parse().expect("an address"));
        for method in super::super::interface().expect("an interface").methods {
            if LOGIN.contains(&method.name.as_str()) {
                continue;
            }
            let said = caller.call(&method.name, Vec::new()).expect_err("no client");
            assert!(said.contains("metadata service"), "{}: {said}", method.name);
        }
    }

    #[test]
    fn methods_that_change_are_those_after_the_line_in_the_interface() {
        let interface = super::super::interface().expect("an interface");
        let names: Vec<&str> = interface.methods.iter().map(|method| method.name.as_str()).collect();
        let first = names.iter().position(|name| *name == CHANGING[0]).expect("is there");
        assert_eq!(names[first..], CHANGING);
        assert_eq!(names[..2], LOGIN);
    }
}
