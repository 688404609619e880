//! The handshake: features, credits, and the mutual proof of the cluster key (docs/wire.md, "Hello").
//!
//! Pure: it turns received messages into messages to send. Both sides prove the key over both nonces, each under a
//! label of its own, so that neither proof can be replayed or reflected.

use crate::frame::VERSION;
use crate::key::ClusterKey;
use crate::proto;
use crate::service::Fault;
use prost::Message;
use vazao_model::Code;
use vazao_model::limits::{BYTES_IN_FLIGHT_MAX, REQUESTS_IN_FLIGHT_MAX};

/// Length of a nonce.
pub const NONCE_BYTES: usize = 32;

/// Longest message before the key has been proved.
pub const HELLO_BYTES_MAX: usize = 512;

/// Features this release knows; the connection uses those both sides know. None are defined yet.
pub const FEATURES: u64 = 0;

const SERVER_LABEL: &[u8] = b"vazao server proof";
const CLIENT_LABEL: &[u8] = b"vazao client proof";

/// A random nonce from the kernel.
pub fn nonce() -> Result<Vec<u8>, Fault> {
    let mut nonce = vec![0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|e| Fault::new(Code::Internal, format!("no randomness: {e}")))?;
    Ok(nonce)
}

struct Transcript<'a> {
    client_nonce: &'a [u8],
    server_nonce: &'a [u8],
    client_features: u64,
    server_features: u64,
}

impl Transcript<'_> {
    fn with<R>(&self, label: &[u8], use_parts: impl FnOnce(&[&[u8]]) -> R) -> R {
        let features = [self.client_features.to_le_bytes(), self.server_features.to_le_bytes()].concat();
        use_parts(&[label, &[VERSION], self.client_nonce, self.server_nonce, &features])
    }
}

fn decode<M: Message + Default>(bytes: &[u8], what: &str) -> Result<M, Fault> {
    if bytes.len() > HELLO_BYTES_MAX {
        return Err(Fault::new(Code::BadRequest, format!("{what} of {} bytes", bytes.len())));
    }
    M::decode(bytes).map_err(|e| Fault::new(Code::BadRequest, format!("{what}: {e}")))
}

fn check_nonce(nonce: &[u8]) -> Result<(), Fault> {
    if nonce.len() == NONCE_BYTES {
        return Ok(());
    }
    Err(Fault::new(Code::BadRequest, format!("nonce of {} bytes", nonce.len())))
}

/// The server's side, from the client's hello to its proof.
#[derive(Debug)]
pub struct ServerHandshake {
    client: proto::ClientHello,
    server_nonce: Vec<u8>,
}

impl ServerHandshake {
    /// Answers a client's hello.
    pub fn answer(
        key: &ClusterKey,
        hello: &[u8],
        nonce: Vec<u8>,
    ) -> Result<(ServerHandshake, Vec<u8>), Fault> {
        let client: proto::ClientHello = decode(hello, "client hello")?;
        check_nonce(&client.nonce)?;
        let handshake = ServerHandshake { client, server_nonce: nonce };
        let proof = handshake.transcript().with(SERVER_LABEL, |parts| key.prove(parts));
        let answer = proto::ServerHello {
            features: FEATURES,
            nonce: handshake.server_nonce.clone(),
            proof: proof.to_vec(),
            requests_max: REQUESTS_IN_FLIGHT_MAX,
            bytes_max: BYTES_IN_FLIGHT_MAX,
        };
        Ok((handshake, answer.encode_to_vec()))
    }

    /// Checks the client's proof.
    pub fn finish(self, key: &ClusterKey, proof: &[u8]) -> Result<(), Fault> {
        let message: proto::ClientProof = decode(proof, "client proof")?;
        if self.transcript().with(CLIENT_LABEL, |parts| key.verify(parts, &message.proof)) {
            return Ok(());
        }
        Err(Fault::new(Code::Unauthenticated, "the client does not have this cluster's key"))
    }

    fn transcript(&self) -> Transcript<'_> {
        Transcript {
            client_nonce: &self.client.nonce,
            server_nonce: &self.server_nonce,
            client_features: self.client.features,
            server_features: FEATURES,
        }
    }
}

/// What the server allows on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credits {
    /// Requests in flight.
    pub requests: u32,
    /// Attachment bytes in flight.
    pub bytes: u64,
}

/// The client's side.
#[derive(Debug)]
pub struct ClientHandshake {
    nonce: Vec<u8>,
}

impl ClientHandshake {
    /// Begins with a nonce; returns the hello to send.
    pub fn begin(nonce: Vec<u8>) -> (ClientHandshake, Vec<u8>) {
        let hello = proto::ClientHello { features: FEATURES, nonce: nonce.clone() };
        (ClientHandshake { nonce }, hello.encode_to_vec())
    }

    /// Checks the server's answer; returns what it allows and the proof to send.
    pub fn finish(self, key: &ClusterKey, answer: &[u8]) -> Result<(Credits, Vec<u8>), Fault> {
        let server: proto::ServerHello = decode(answer, "server hello")?;
        check_nonce(&server.nonce)?;
        let transcript = Transcript {
            client_nonce: &self.nonce,
            server_nonce: &server.nonce,
            client_features: FEATURES,
            server_features: server.features,
        };
        if !transcript.with(SERVER_LABEL, |parts| key.verify(parts, &server.proof)) {
            let detail = "the server has another cluster key; use the key file of its cluster";
            return Err(Fault::new(Code::Unauthenticated, detail));
        }
        let proof = transcript.with(CLIENT_LABEL, |parts| key.prove(parts));
        let credits = Credits { requests: server.requests_max.max(1), bytes: server.bytes_max.max(1) };
        Ok((credits, proto::ClientProof { proof: proof.to_vec() }.encode_to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shake(client_key: &ClusterKey, server_key: &ClusterKey) -> Result<Credits, Fault> {
        let (client, hello) = ClientHandshake::begin(vec![1; NONCE_BYTES]);
        let (server, answer) = ServerHandshake::answer(server_key, &hello, vec![2; NONCE_BYTES])?;
        let (credits, proof) = client.finish(client_key, &answer)?;
        server.finish(server_key, &proof)?;
        Ok(credits)
    }

    #[test]
    fn the_same_key_is_accepted_and_another_is_not() {
        let key = ClusterKey::generate().expect("randomness");
        assert!(shake(&key, &key).is_ok());
        let other = shake(&key, &ClusterKey::insecure()).expect_err("refused");
        assert_eq!(other.code, Code::Unauthenticated);
    }

    #[test]
    fn a_client_that_reflects_the_servers_proof_is_refused() {
        let key = ClusterKey::generate().expect("randomness");
        let (_, hello) = ClientHandshake::begin(vec![1; NONCE_BYTES]);
        let (server, answer) = ServerHandshake::answer(&key, &hello, vec![2; NONCE_BYTES]).expect("answered");
        let stolen = proto::ServerHello::decode(answer.as_slice()).expect("decodes").proof;
        let proof = proto::ClientProof { proof: stolen }.encode_to_vec();
        assert_eq!(server.finish(&key, &proof).expect_err("refused").code, Code::Unauthenticated);
    }

    #[test]
    fn short_nonces_and_long_hellos_are_refused() {
        let key = ClusterKey::insecure();
        let (_, short) = ClientHandshake::begin(vec![1; 8]);
        assert!(ServerHandshake::answer(&key, &short, vec![2; NONCE_BYTES]).is_err());
        assert!(ServerHandshake::answer(&key, &[0; HELLO_BYTES_MAX + 1], vec![2; NONCE_BYTES]).is_err());
    }
}
