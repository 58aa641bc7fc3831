//! Reports of agents: any line is a report, is cut to one, or is refused; a parsed one can be
//! written and parsed again.

use stasis_protocol::{Bundle, Done, ExceptionInfo, InstructionEnd, Report, Variable};

/// Pieces of reports, and pieces that the pre-check counts.
pub const WORDS: &[&str] = &[
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":",
    "{\"type\":\"done\",\"seq\":",
    "{\"type\":\"display\",\"seq\":7",
    ",\"seq\":18446744073709551616",
    ",\"seq\":-1",
    "\"runtime_ms\":1e308",
    "\"how\":\"asleep\"",
    "\\u0000",
    "\\ud800",
    "\\\\\"",
    "null",
    ",,,,,,,,",
];
/// Beyond this the bound on values may be met with the defaults that writing adds.
const SMALL: usize = 64 << 10;

pub fn seeds() -> Vec<Vec<u8>> {
    let data = Bundle::from([
        ("text/plain".to_owned(), "2".into()),
        ("application/json".to_owned(), serde_json::json!({ "a": [1, 2.5, { "b": null }] })),
    ]);
    let failure = ExceptionInfo {
        name: "ValueError".into(),
        message: "no".into(),
        traceback: "Traceback\n \"x\"".into(),
    };
    let variable = Variable { name: "x".into(), repr: "1".into(), ..Variable::default() };
    let words = || vec!["random".to_owned(), "numpy".to_owned()];
    let reports = [
        Report::Ready {
            generation: 1,
            language: "python".into(),
            version: "3.13".into(),
            orders: words(),
        },
        Report::Awake { generation: 1, changed: words() },
        Report::Display { seq: 7, data: data.clone(), cut: None },
        Report::Part {
            seq: 7,
            name: "value".into(),
            kind: "text/plain".into(),
            text: "é\u{1f600}".into(),
            last: true,
        },
        Report::Done(Done { seq: 1, value: Some("2".into()), data: Some(data), ..Done::default() }),
        Report::Done(Done {
            seq: 2,
            error: Some(failure),
            how: Some(InstructionEnd::Interrupted),
            runtime_ms: 0.25,
            touched: words(),
            ..Done::default()
        }),
        Report::Vars { vars: vec![variable] },
        Report::Complete { start: 3, names: words() },
        Report::Frozen,
        Report::Carried { names: words(), failed: [("f".into(), "a lambda".into())].into() },
    ];
    reports.iter().map(|one| serde_json::to_vec(one).expect("a report is JSON")).collect()
}

pub fn read(line: &[u8]) {
    if let Some(cut) = Report::cut(line, "too much") {
        assert!(
            matches!(&cut, Report::Done(Done { cut: Some(_), .. }))
                || matches!(&cut, Report::Display { cut: Some(_), .. }),
            "what is cut says so: {cut:?}"
        );
        is_readable(&cut);
    }
    let Ok(report) = Report::parse(line) else { return };
    if let Report::Awake { changed: words, .. } | Report::Ready { orders: words, .. } = &report {
        assert!(words.len() <= 64 && words.iter().all(|word| word.len() <= 500), "{words:?}");
    }
    if line.len() <= SMALL {
        is_readable(&report);
    }
}

fn is_readable(report: &Report) {
    let text = serde_json::to_vec(report).expect("what was read can be written");
    let again = Report::parse(&text).expect("and read again");
    let kinds = [report, &again].map(std::mem::discriminant);
    assert_eq!(kinds[0], kinds[1], "as the same kind");
}
