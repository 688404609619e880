//! Calls a calculator: `calculator-client [HOST:PORT]`.

use std::path::Path;
use std::sync::Arc;
use vazao_luarpc::client::CallOptions;
use vazao_luarpc::{Client, Interface, system_clock};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "localhost:8080".to_owned());
    let interface = Arc::new(Interface::load(Path::new("calculator.lua"))?);
    let mut calculator = Client::new(&server, interface, CallOptions::default(), system_clock());
    let sum = calculator.call("add", &[1.0.into(), 2.0.into()])?;
    println!("{}", sum[0]);
    let parts = calculator.call("split", &["word".into()])?;
    println!("{} {}", parts[0], parts[1]);
    Ok(())
}
