//! A proxy like the worst networks: each change is answered only at the second request, although
//! the service did it at the first, and longer answers break off.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Where in an answer that is a stream the connection breaks.
const CUT: u64 = 2000;

/// Changes requested once.
type Lost = Mutex<HashSet<Vec<u8>>>;

/// Starts it; its address.
pub fn start(service: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (service, lost) = (service.to_owned(), Arc::new(Lost::default()));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (service, lost) = (service.clone(), lost.clone());
            // a connection that fails is what this is for
            std::thread::spawn(move || drop(pass(&client, &service, &lost)));
        }
    });
    url
}

/// One request and its answer, or some of it.
fn pass(mut client: &TcpStream, service: &str, lost: &Lost) -> std::io::Result<()> {
    let (head, body) = read(client)?;
    let mut upstream = TcpStream::connect(service)?;
    upstream.write_all(head.as_bytes())?;
    upstream.write_all(&body)?;
    if head.starts_with("POST") {
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer)?;
        let asked = [head.as_bytes(), &body].concat();
        return match lost.lock().expect("nobody panicked").insert(asked) {
            true => Ok(()),
            false => client.write_all(&answer),
        };
    }
    let is_stream = |line: &str| line.contains("/events") || line.contains("/file?");
    let streams = head.lines().next().is_some_and(is_stream);
    std::io::copy(&mut upstream.take(if streams { CUT } else { u64::MAX }), &mut client)?;
    Ok(())
}

/// A request, changed so that its connection ends with it.
fn read(client: &TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut lines = BufReader::new(client);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
        if !lower.starts_with("connection:") {
            head.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body)?;
    Ok((head + "connection: close\r\n\r\n", body))
}
