//! The agent as the binary carries it speaks the protocol as the host reads it.

use stasis_protocol::{
    ExecOrder, GENERATION, InstructionEnd, Order, Reason, Report, ToolAnswer, Wake,
};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// An agent started from the files in the binary.
struct Agent {
    child: Child,
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    _files: tempfile::TempDir,
}

impl Agent {
    fn start() -> Agent {
        let files = tempfile::tempdir().expect("a directory");
        for (path, content) in stasis_agent::default().files() {
            let path = files.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below the directory")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        let python = std::env::var("STASIS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let argv =
            stasis_agent::default().argv(&python, files.path().to_str().expect("a plain path"));
        // a shell moves the socket from standard input to descriptor 3
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 0</dev/null"])
            .args(argv)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .expect("the agent starts");
        let reader = BufReader::new(ours.try_clone().expect("a copy"));
        Agent { child, reader, writer: ours, _files: files }
    }

    fn report(&mut self) -> Report {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn ask(&mut self, order: &Order) -> Report {
        let line = serde_json::to_string(order).expect("orders are JSON") + "\n";
        self.writer.write_all(line.as_bytes()).expect("sent");
        self.report()
    }

    fn exec(&mut self, code: &str) -> Report {
        self.ask(&Order::Exec(ExecOrder {
            seq: 7,
            code: code.to_owned(),
            max_bytes: 1000,
            max_whole: 0,
            input: false,
            fetch: false,
            tools: false,
            prepared: None,
        }))
    }

    fn close(mut self) {
        self.writer.shutdown(std::net::Shutdown::Both).expect("closed");
        assert!(self.child.wait().expect("ended").success());
    }
}

#[test]
fn every_kind_of_report_is_understood() {
    let mut agent = Agent::start();
    let ready = agent.report();
    let Report::Ready { generation: GENERATION, language, mut orders, .. } = ready else {
        panic!("{ready:?}")
    };
    assert_eq!(language, stasis_agent::default().name());
    let input = Order::Input { seq: 0, line: None };
    let tool = Order::Tool { seq: 0, id: 0, answer: ToolAnswer::Unchanged };
    let later = [input.kind(), tool.kind()];
    let mut known: Vec<&str> = Order::FIRST.into_iter().chain(later).collect();
    orders.sort();
    known.sort();
    assert_eq!(orders, known);
    let wake = Wake {
        reason: Reason::New,
        machine: "m".to_owned(),
        entropy: "00ff".to_owned(),
        reseed: true,
        env: Default::default(),
        defaults: Default::default(),
    };
    let awake = agent.ask(&Order::Wake(wake));
    assert!(matches!(awake, Report::Awake { generation: GENERATION, .. }), "{awake:?}");
    let Report::Done(done) = agent.exec("a = 20\na + 22") else { panic!("no Done") };
    assert_eq!((done.seq, done.value.as_deref()), (7, Some("42")));
    assert_eq!(done.how, Some(InstructionEnd::Completed));
    let Report::Done(done) = agent.exec("1 / 0") else { panic!("no Done") };
    assert_eq!(
        (done.error.expect("an error").name, done.how),
        ("ZeroDivisionError".into(), Some(InstructionEnd::Failed))
    );
    let Report::Display { data, cut, .. } = agent.exec("display('x' * 5000)") else {
        panic!("no Display")
    };
    assert_eq!(data["text/plain"].as_str().map(str::len), Some(1000));
    assert!(cut.expect("says so").contains("5002"));
    assert!(matches!(agent.report(), Report::Done(_)));
    let Report::Vars { vars } = agent.ask(&Order::Vars) else { panic!("no Vars") };
    assert_eq!((vars[0].name.as_str(), vars[0].kind.as_str()), ("a", "int"));
    let complete = agent.ask(&Order::Complete { code: "displ".to_owned(), cursor: 5 });
    assert_eq!(complete, Report::Complete { start: 0, names: vec!["display".to_owned()] });
    assert_eq!(agent.ask(&Order::Freeze), Report::Frozen);
    let carried = agent.ask(&Order::Load { path: "/nowhere".to_owned() });
    assert!(matches!(carried, Report::Carried { .. }), "{carried:?}");
    agent.close();
}
