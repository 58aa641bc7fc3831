//! A service that says what a test tells it to: also things no real one says twice.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// One answer.
#[derive(Clone)]
pub struct Answer {
    status: u16,
    body: String,
    /// The connection breaks after the body, which promised more.
    cut: bool,
    /// Half of the body waits for it.
    gate: Option<Gate>,
}

/// Keeps back what waits for it until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().expect("not poisoned") = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.0.lock().expect("not poisoned");
        drop(self.0.1.wait_while(open, |open| !*open).expect("not poisoned"));
    }
}

/// An answer of which the second half comes when the gate is opened.
pub fn held(body: impl ToString, gate: &Gate) -> Answer {
    Answer { gate: Some(gate.clone()), ..ok(body) }
}

pub fn ok(body: impl ToString) -> Answer {
    Answer { status: 200, body: body.to_string(), cut: false, gate: None }
}

pub fn refuse(status: u16, body: impl ToString) -> Answer {
    Answer { status, body: body.to_string(), cut: false, gate: None }
}

pub fn cut(body: impl ToString) -> Answer {
    Answer { status: 200, body: body.to_string(), cut: true, gate: None }
}

type Answers = HashMap<String, Vec<Answer>>;

/// First line, headers, body.
type Asked = Arc<Mutex<Vec<(String, String, String)>>>;

pub struct Fake {
    pub url: String,
    asked: Asked,
}

impl Fake {
    /// Answers `METHOD /path` in turn, the last answer again and again.
    pub fn new(answers: &[(&str, Vec<Answer>)]) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Asked::default();
        let answers = answers.iter().map(|(line, list)| ((*line).to_owned(), list.clone()));
        let answers = Arc::new(Mutex::new(answers.collect::<Answers>()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, log) = (answers.clone(), log.clone());
                // a client that leaves is part of some tests
                std::thread::spawn(move || drop(serve(&stream, &answers, &log)));
            }
        });
        Fake { url, asked }
    }

    /// The requests: each first line, and its body.
    pub fn asked(&self) -> Vec<(String, String)> {
        let asked = self.asked.lock().expect("not poisoned");
        asked.iter().map(|(line, _, body)| (line.clone(), body.clone())).collect()
    }

    /// The values of a header, of the requests that had it.
    pub fn headers(&self, name: &str) -> Vec<String> {
        let asked = self.asked.lock().expect("not poisoned");
        let value = |line: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        asked.iter().filter_map(|(_, head, _)| head.lines().find_map(value)).collect()
    }

    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|(line, _)| line).collect()
    }
}

fn serve(stream: &TcpStream, answers: &Mutex<Answers>, log: &Asked) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let line = first.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let (head, body) = read_rest(&mut reader)?;
    log.lock().expect("not poisoned").push((line.clone(), head, body));
    let missing = refuse(404, r#"{"code":"fake.missing","message":"the test has no answer"}"#);
    let answer = match answers.lock().expect("not poisoned").get_mut(&line) {
        Some(list) if list.len() > 1 => list.remove(0),
        Some(list) => list[0].clone(),
        None => missing,
    };
    let length = answer.body.len() + if answer.cut { 1000 } else { 0 };
    let head = format!(
        "HTTP/1.1 {} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n",
        answer.status
    );
    let mut out = stream;
    out.write_all(head.as_bytes())?;
    let (now, later) = answer.body.split_at(answer.body.len() / 2);
    out.write_all(now.as_bytes())?;
    if let Some(gate) = &answer.gate {
        gate.wait();
    }
    out.write_all(later.as_bytes())
}

fn read_rest(reader: &mut BufReader<&TcpStream>) -> std::io::Result<(String, String)> {
    let (mut length, mut head) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim_end().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&header);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}
