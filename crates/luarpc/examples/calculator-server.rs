//! Answers as a calculator: `calculator-server [HOST:PORT]`.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use vazao_luarpc::server::{Function, serve};
use vazao_luarpc::{Interface, Options, Value, system_clock};

fn calculate(method: &str, arguments: Vec<Value>) -> Result<Vec<Value>, String> {
    match (method, arguments.as_slice()) {
        ("add", [Value::Double(one), Value::Double(other)]) => Ok(vec![(one + other).into()]),
        ("split", [Value::String(text)]) => {
            let (first, rest) = text.split_first().ok_or("an empty text has no first letter")?;
            Ok(vec![Value::Char(*first), rest.to_vec().into()])
        }
        _ => Err("this calculator cannot do that".to_owned()),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let interface = Arc::new(Interface::load(Path::new("calculator.lua"))?);
    let listener = TcpListener::bind(address)?;
    let calculator = Arc::new(Function::new(true, calculate));
    let server = serve(listener, interface, calculator, Options::default(), system_clock())?;
    println!("listening on {}", server.address());
    loop {
        std::thread::park(); // the server has threads of its own
    }
}
