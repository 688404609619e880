//! Files of a server that knows only the oldest commands.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

const CONTENTS: &[u8] = b"what the file has";

/// Serves one session. Returns the commands that came.
fn serve(listener: &TcpListener) -> std::io::Result<Vec<String>> {
    let (socket, _) = listener.accept()?;
    let mut writer = socket.try_clone()?;
    let mut commands = Vec::new();
    let mut passive: Option<TcpListener> = None;
    writer.write_all(b"220 hello\r\n")?;
    for line in BufReader::new(socket).lines() {
        let line = line?;
        let answer = match line.split(' ').next().unwrap_or_default() {
            "USER" => "230 in".to_owned(),
            "TYPE" => "200 binary".to_owned(),
            "SIZE" => format!("213 {}", CONTENTS.len()),
            "EPSV" => {
                let data = passive.insert(TcpListener::bind("127.0.0.1:0")?);
                format!("229 go (|||{}|)", data.local_addr()?.port())
            }
            "RETR" => {
                let accepted = passive.take().map(|data| data.accept());
                writer.write_all(b"150 here it comes\r\n")?;
                if let Some(accepted) = accepted {
                    accepted?.0.write_all(CONTENTS)?;
                }
                "226 done".to_owned()
            }
            "QUIT" => "221 bye".to_owned(),
            _ => "502 no".to_owned(),
        };
        commands.push(line);
        writer.write_all(format!("{answer}\r\n").as_bytes())?;
    }
    Ok(commands)
}

/// After the end of a file another transfer was begun there (REST, RETR), to hear that nothing comes: for each file,
/// and a server without REST could not be copied from at all.
#[test]
fn a_file_that_has_ended_is_not_asked_for_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || serve(&listener));
    let tree = FtpTree::new(
        vazao_meter::clock::system(),
        Stop::on_signals(&[]).expect("no signals"),
        FtpTimeouts::default(),
    );
    let path = format!("ftp://{address}/x").into_bytes();
    let source = tree.open(&path).expect("opens");
    let mut buffer = [0; 4096];
    assert_eq!(source.read_at(&mut buffer, 0).expect("read"), CONTENTS.len());
    assert_eq!(&buffer[..CONTENTS.len()], CONTENTS);
    for _ in 0..2 {
        assert_eq!(source.read_at(&mut buffer, CONTENTS.len() as u64).expect("ends"), 0);
    }
    drop(source);
    tree.close();
    // For a session that never came.
    drop(TcpStream::connect(address));
    let commands = server.join().expect("no panic").expect("served");
    assert_eq!(commands.iter().filter(|line| line.starts_with("RETR")).count(), 1, "{commands:?}");
}
