//! A proxy that records requests, so that an operation of the service's document without a call in
//! an SDK is found.

use crate::root;
use libtest_mimic::Failed;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Methods and paths, as they stand in first lines of requests.
type Asked = Arc<Mutex<BTreeSet<(String, String)>>>;

/// Longer first lines than any of ours.
const LONGEST: usize = 8 << 10;

pub struct Relay {
    pub url: String,
    asked: Asked,
}

impl Relay {
    pub fn start(service: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (service, asked) = (service.to_owned(), Asked::default());
        let heard = asked.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (service, heard) = (service.clone(), heard.clone());
                // a side that ends early is no matter of ours
                std::thread::spawn(move || drop(pass(client, &service, &heard)));
            }
        });
        Relay { url, asked }
    }

    /// Fails if something in the document was not asked for, and is not known to be left out.
    pub fn check(&self) -> Result<(), Failed> {
        let asked = self.asked.lock().expect("nobody panicked");
        let left_out = left_out()?;
        let is_reached = |(method, path): &(String, String)| {
            asked.iter().any(|(asked, at)| asked == method && is_of(path, at))
        };
        let (reached, missed): (Vec<_>, Vec<_>) = operations()?.into_iter().partition(is_reached);
        let words = |list: Vec<&(String, String)>| {
            let lines = list.into_iter().map(|(method, path)| format!("\n  {method} {path}"));
            lines.collect::<String>()
        };
        let lacking = words(missed.iter().filter(|one| !left_out.contains(one)).collect());
        let needless = words(reached.iter().filter(|one| left_out.contains(one)).collect());
        match lacking.is_empty() && needless.is_empty() {
            true => Ok(()),
            false => {
                Err(format!("no scenario asks for:{lacking}\nleft out without need:{needless}")
                    .into())
            }
        }
    }
}

/// One connection, both ways.
fn pass(client: TcpStream, service: &str, heard: &Asked) -> std::io::Result<()> {
    let upstream = TcpStream::connect(service)?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (mut back, mut from) = (client.try_clone()?, upstream.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let done = forward(&client, &upstream, heard);
    let _ = upstream.shutdown(Shutdown::Both);
    done
}

fn forward(mut client: &TcpStream, mut upstream: &TcpStream, heard: &Asked) -> std::io::Result<()> {
    let (mut piece, mut seen) = (vec![0; 64 << 10], Vec::new());
    loop {
        let len = client.read(&mut piece)?;
        if len == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&piece[..len]);
        remember(&mut seen, heard);
        upstream.write_all(&piece[..len])?;
    }
}

/// Takes whole lines; those that begin requests are remembered.
fn remember(seen: &mut Vec<u8>, heard: &Asked) {
    while let Some(end) = seen.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = seen.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line);
        // a body that ends without a line's end stands before the next request
        let Some(rest) = line.trim_end().strip_suffix(" HTTP/1.1") else { continue };
        let Some((before, target)) = rest.rsplit_once(' ') else { continue };
        let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        let Some(method) = methods.iter().find(|method| before.ends_with(*method)) else {
            continue;
        };
        let path = target.split('?').next().unwrap_or_default().to_owned();
        heard.lock().expect("nobody panicked").insert(((*method).to_owned(), path));
    }
    if seen.len() > LONGEST {
        seen.drain(..seen.len() - LONGEST);
    }
}

/// Whether a path is one of those that a pattern such as `/v1/machine/{name}` stands for.
fn is_of(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) =
        (pattern.split('/').collect(), path.split('/').collect());
    let fits = |(wanted, given): (&&str, &&str)| {
        wanted == given || (wanted.starts_with('{') && !["list", "new"].contains(given))
    };
    pattern.len() == path.len() && pattern.iter().zip(&path).all(fits)
}

fn operations() -> Result<Vec<(String, String)>, Failed> {
    let text = std::fs::read_to_string(root().join("docs/reference/openapi.json"))?;
    let document: serde_json::Value = serde_json::from_str(&text)?;
    let paths = document["paths"].as_object().ok_or("no paths")?;
    let each = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, _)| (method.to_uppercase(), path.clone()))
    });
    Ok(each.collect())
}

/// The entries of `without.txt`; each with a reason.
fn left_out() -> Result<Vec<(String, String)>, Failed> {
    let text = std::fs::read_to_string(root().join("sdk/scenarios/without.txt"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let operation = (words.next()?.to_owned(), words.next()?.to_owned());
        words.next().map(|_reason| operation)
    };
    let strange = |line: &str| Failed::from(format!("`{line}` is not METHOD PATH REASON"));
    lines.map(|line| read(line).ok_or_else(|| strange(line))).collect()
}
