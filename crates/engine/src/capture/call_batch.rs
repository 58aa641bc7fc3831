//! Calls that tell what only a thread itself knows, made with as few stops as possible.
//!
//!   questions: getitimer, sigaltstack, rt_sigaction …  ─► batches of 24 ─► results, and what the
//!                                                         calls wrote to memory
//!
//! A stop costs two switches to the thread and back, far more than a call.

use super::process::words;
use crate::error::Result;
use crate::inject::Injector;

/// Calls in one batch, and bytes of the scratch memory that their answers may take.
const TOGETHER: usize = 24;
const ROOM: usize = 1024;

/// The calls to make.
#[derive(Default)]
pub struct CallBatch(Vec<Call>);

/// A question that was put to the list, by which its answer is found.
#[derive(Debug, Clone, Copy)]
pub struct QueuedCall(usize);

struct Call {
    number: i64,
    args: [u64; 6],
    /// The argument that says where the answer goes, and its length.
    out: Option<(usize, usize)>,
}

impl CallBatch {
    /// A call whose result is the answer.
    pub fn call(&mut self, number: i64, args: [u64; 6]) -> QueuedCall {
        self.add(Call { number, args, out: None })
    }

    /// A call that writes `len` bytes to where argument `to` points.
    pub fn fill(&mut self, number: i64, args: [u64; 6], to: usize, len: usize) -> QueuedCall {
        assert!(len.is_multiple_of(8) && len <= ROOM, "answers are words that fit");
        self.add(Call { number, args, out: Some((to, len)) })
    }

    fn add(&mut self, call: Call) -> QueuedCall {
        self.0.push(call);
        QueuedCall(self.0.len() - 1)
    }

    pub fn ask(self, injector: &mut Injector) -> Result<CallResults> {
        let mut answers = CallResults(Vec::with_capacity(self.0.len()));
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            let (some, later) = rest.split_at(together(rest));
            ask(some, injector, &mut answers)?;
            rest = later;
        }
        Ok(answers)
    }
}

/// How many of these calls fit into one batch.
fn together(calls: &[Call]) -> usize {
    let mut room = ROOM;
    let fits = |call: &&Call| {
        let left = room.checked_sub(call.out.map_or(0, |(_, len)| len));
        left.inspect(|left| room = *left).is_some()
    };
    calls.iter().take(TOGETHER).take_while(fits).count()
}

fn ask(calls: &[Call], injector: &mut Injector, answers: &mut CallResults) -> Result<()> {
    let lens = calls.iter().map(|call| call.out.map_or(0, |(_, len)| len));
    let used: usize = lens.clone().sum();
    let base = if used > 0 { injector.put(0, &vec![0; used])? } else { 0 };
    let mut at = 0;
    let placed: Vec<(i64, [u64; 6])> = calls
        .iter()
        .map(|call| {
            let mut args = call.args;
            if let Some((to, len)) = call.out {
                args[to] = base + at as u64;
                at += len;
            }
            (call.number, args)
        })
        .collect();
    let results = injector.batch(&placed)?;
    let written = injector.get(0, used)?;
    let mut rest = &written[..];
    answers.0.extend(results.into_iter().zip(lens).map(|(result, len)| {
        let (own, later) = rest.split_at(len);
        rest = later;
        (result, words(own))
    }));
    Ok(())
}

/// Results, and the words that calls wrote.
pub struct CallResults(Vec<(i64, Vec<u64>)>);

impl CallResults {
    pub fn result(&self, question: QueuedCall) -> i64 {
        self.0[question.0].0
    }

    pub fn words(&self, question: QueuedCall) -> &[u64] {
        &self.0[question.0].1
    }
}
