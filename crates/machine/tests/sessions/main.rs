//! Every instruction is a state: random sessions on a real host against a model of states.
//!
//!   step ─► the host, a process of its own ─► what a client sees
//!      └──► the model: two lists, what ran and what can be redone ──► the same?
//!
//! Steps run instructions one by one and pipelined, at every durability and grouping, go back and
//! forward, branch, label, apply retention, store states as differences, swap, and kill the host
//! with instructions on their way. A failure names the seed of its session; `STASIS_SEED`
//! runs that session alone.

mod host;
mod model;

use host::{Batch, HostAnswer, HostOrder, HostProcess, JAVASCRIPT, PYTHON, SessionLanguage, Sight};
use model::{Kept, Model, number};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use stasis_api::{Checkpoints, Durability};
use stasis_testbed::data_dir_of;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

#[derive(Debug, Clone, Copy)]
enum Step {
    Run(Batch),
    /// Runs instructions, and kills the host when so many have ended.
    Kill(Batch, usize),
    Undo {
        n: usize,
        grouped: bool,
    },
    Redo {
        n: usize,
        grouped: bool,
    },
    /// To one of the instructions that ran, or to the beginning.
    RollBack(usize),
    Branch {
        at: usize,
        keep: bool,
    },
    Label(usize),
    Retain(u64),
    Thin,
    Swap,
}

fn batch() -> impl Strategy<Value = Batch> {
    let durability = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Durability::Memory)),
        1 => Just(Some(Durability::Local)),
    ];
    let checkpoints = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Checkpoints::Exact)),
        1 => Just(Some(Checkpoints::Grouped)),
    ];
    (1usize..5, any::<bool>(), durability, checkpoints).prop_map(
        |(count, pipelined, durability, checkpoints)| Batch {
            count,
            pipelined,
            durability,
            checkpoints,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let grouped = || prop::bool::weighted(0.3);
    prop_oneof![
        8 => batch().prop_map(Step::Run),
        1 => (batch(), 1usize..5).prop_map(|(batch, after)| Step::Kill(batch, after)),
        5 => (1usize..4, grouped()).prop_map(|(n, grouped)| Step::Undo { n, grouped }),
        4 => (1usize..4, grouped()).prop_map(|(n, grouped)| Step::Redo { n, grouped }),
        2 => any::<usize>().prop_map(Step::RollBack),
        1 => (any::<usize>(), prop::bool::weighted(0.3))
            .prop_map(|(at, keep)| Step::Branch { at, keep }),
        2 => any::<usize>().prop_map(Step::Label),
        1 => (1u64..6).prop_map(Step::Retain),
        1 => Just(Step::Thin),
        2 => Just(Step::Swap),
    ]
}

/// One machine, what it should be, and the host it is on.
struct Session {
    dir: TempDir,
    name: String,
    language: &'static SessionLanguage,
    host: HostProcess,
    model: Model,
    checkpoints: Checkpoints,
    durability: Durability,
}

impl Session {
    fn start(
        language: &'static SessionLanguage,
        checkpoints: Checkpoints,
        durability: Durability,
    ) -> Session {
        let dir = data_dir_of(language.template);
        let name = host::make(dir.path(), language, checkpoints, durability);
        let host = HostProcess::start(dir.path(), &name, language);
        Session { dir, name, language, host, model: Model::default(), checkpoints, durability }
    }

    fn look(&mut self) -> Sight {
        match self.host.ask(&HostOrder::Look) {
            HostAnswer::Seen(sight) => sight,
            other => panic!("a look: {other:?}"),
        }
    }

    /// All of it is saved then.
    fn settle(&mut self) -> Sight {
        assert!(matches!(self.host.ask(&HostOrder::Settle), HostAnswer::Done));
        self.look()
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Run(batch) => self.run(batch),
            Step::Kill(batch, after) => self.kill(batch, after),
            Step::Undo { n, grouped } => self.undo(n, grouped),
            Step::Redo { n, grouped } => self.redo(n, grouped),
            Step::RollBack(at) => self.roll_back(at),
            Step::Branch { at, keep } => self.branch(at, keep),
            Step::Label(at) => self.label(at),
            Step::Retain(last) => self.retain(last),
            Step::Thin => self.done(&HostOrder::Thin),
            Step::Swap => self.done(&HostOrder::Swap),
        }
    }

    fn done(&mut self, order: &HostOrder) {
        let answer = self.host.ask(order);
        assert!(matches!(answer, HostAnswer::Done), "{answer:?}");
    }

    fn note_exact(&mut self, batch: Batch, seqs: &[u64]) {
        if batch.checkpoints.unwrap_or(self.checkpoints) == Checkpoints::Exact {
            self.model.exact.extend(seqs);
        }
    }

    fn run(&mut self, batch: Batch) {
        self.host.order(&HostOrder::Run(batch));
        let mut seqs = Vec::new();
        loop {
            match self.host.answer() {
                HostAnswer::Ended(seq) => seqs.push(seq),
                HostAnswer::Done => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seqs.len(), batch.count);
        self.note_exact(batch, &seqs);
        self.model.extend(&seqs);
    }

    fn kill(&mut self, batch: Batch, after: usize) {
        self.host.order(&HostOrder::Run(batch));
        let mut ended = Vec::new();
        while ended.len() < after.min(batch.count) {
            match self.host.answer() {
                HostAnswer::Ended(seq) => ended.push(seq),
                other => panic!("{other:?}"),
            }
        }
        self.host.kill();
        self.host = HostProcess::start(self.dir.path(), &self.name, self.language);
        let sight = self.look();
        self.settle_after_kill(batch, &ended, &sight);
    }

    /// After a kill: the machine is at a state on disk, and says what it lost of what it had
    /// acknowledged.
    fn settle_after_kill(&mut self, batch: Batch, ended: &[u64], sight: &Sight) {
        let acknowledged = self.model.ran.len() + ended.len();
        let submitted: Vec<u64> = (ended[0]..sight.next).collect();
        self.note_exact(batch, &submitted);
        self.model.extend(&submitted);
        let kept = sight.ran.len();
        assert!(self.model.ran.starts_with(&sight.ran), "{:?} of {:?}", sight.ran, self.model.ran);
        let lost: Vec<u64> = self.model.ran.iter().copied().take(acknowledged).skip(kept).collect();
        let safe = batch.durability.unwrap_or(self.durability) == Durability::Local;
        assert!(!safe || lost.is_empty(), "{lost:?} were on disk");
        let single = lost.iter().filter(|seq| self.model.exact.contains(seq)).count();
        assert!(single <= 1, "{lost:?} were lost: more than the last state");
        assert!(lost.is_empty() || sight.lost.is_some(), "{lost:?} were lost without a word");
        self.model.lose(kept);
    }

    fn undo(&mut self, n: usize, grouped: bool) {
        let answer = self.host.ask(&HostOrder::Undo { n, grouped });
        let Some(to) = self.model.ran.len().checked_sub(n).filter(|_| !self.model.ran.is_empty())
        else {
            return refused(&answer, &["history.too_far"]);
        };
        let wanted = to.checked_sub(1).map(|at| self.model.kept(self.model.ran[at]));
        if self.settled(&answer, wanted.unwrap_or(Kept::Yes)) {
            let ran = self.look().ran.len();
            let exact = !grouped || wanted.is_none_or(|kept| kept == Kept::Yes);
            assert!(ran == to || (!exact && ran < to), "{ran} are left, {to} were wanted");
            self.model.back(ran);
        }
    }

    fn redo(&mut self, n: usize, grouped: bool) {
        let answer = self.host.ask(&HostOrder::Redo { n, grouped });
        let Some(wanted) = self.model.undone.get(n - 1).copied() else {
            return refused(&answer, &["history.too_far"]);
        };
        let kept = self.model.kept(wanted);
        // one further on may take it along
        let kept = if kept == Kept::No && grouped { Kept::Perhaps } else { kept };
        if self.settled(&answer, kept) {
            let more = self.look().ran.len() - self.model.ran.len();
            let exact = !grouped || kept == Kept::Yes;
            assert!(more == n || (!exact && more > n), "{more} were redone, {n} were wanted");
            self.model.forward(more);
        }
    }

    fn roll_back(&mut self, at: usize) {
        let at = at % (self.model.ran.len() + 1);
        let seq = at.checked_sub(1).map(|at| self.model.ran[at]);
        let answer = self.host.ask(&HostOrder::RollBack(seq));
        if self.settled(&answer, seq.map_or(Kept::Yes, |seq| self.model.kept(seq))) {
            self.model.back(at);
        }
    }

    fn branch(&mut self, at: usize, keep: bool) {
        let Some(at) = at.checked_rem(self.model.ran.len()) else { return };
        let seq = self.model.ran[at];
        let answer = self.host.ask(&HostOrder::Branch { seq, keep });
        match answer {
            HostAnswer::Held(held) => {
                assert_ne!(self.model.kept(seq), Kept::No);
                assert_eq!(held, number(&self.model.ran[..=at]), "what the branch holds");
                if keep {
                    self.model.branched.insert(seq);
                }
            }
            answer => assert!(!self.settled(&answer, self.model.kept(seq))),
        }
    }

    fn label(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.model.ran.len()) else { return };
        let seq = self.model.ran[at];
        let label = (!self.model.labels.contains_key(&seq)).then(|| format!("after {seq}"));
        let answer = self.host.ask(&HostOrder::Label(seq, label.clone()));
        if self.settled(&answer, self.model.kept(seq)) {
            match label {
                Some(label) => self.model.labels.insert(seq, label),
                None => self.model.labels.remove(&seq),
            };
        }
    }

    fn retain(&mut self, last: u64) {
        let states: Vec<u64> = self.settle().states.into_keys().collect();
        let stay = self.model.retain(&states, last as usize);
        self.done(&HostOrder::Retain(last));
        let left: Vec<u64> = self.look().states.into_keys().collect();
        assert_eq!(left, stay, "the states that retention keeps");
    }

    /// Whether an action needs a state: always if there is one, never if it was dropped. A refused
    /// action changes nothing.
    fn settled(&self, answer: &HostAnswer, kept: Kept) -> bool {
        match (answer, kept) {
            (HostAnswer::Done, Kept::Yes | Kept::Perhaps) => true,
            (HostAnswer::Refused { .. }, Kept::No | Kept::Perhaps) => {
                refused(answer, &["checkpoint.not_found", "checkpoint.shared"]);
                false
            }
            _ => panic!("{answer:?}, where the state is kept: {kept:?}"),
        }
    }
}

fn refused(answer: &HostAnswer, codes: &[&str]) {
    let right = matches!(answer, HostAnswer::Refused { code, .. } if codes.contains(&&**code));
    assert!(right, "{answer:?} is none of {codes:?}");
}

/// Says where a session is when it fails.
struct Context<'a> {
    seed: u64,
    done: &'a [Step],
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("STASIS_SEED={}, after {:#?}", self.seed, self.done);
        }
    }
}

fn session(
    language: &'static SessionLanguage,
    seed: u64,
    checkpoints: Checkpoints,
    durability: Durability,
) {
    let bytes: Vec<u8> = seed.to_le_bytes().repeat(4);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = prop::collection::vec((step(), any::<bool>()), STEPS);
    let steps = steps.new_tree(&mut runner).expect("steps").current();
    let all: Vec<Step> = steps.iter().map(|(step, _)| *step).collect();
    let mut session = Session::start(language, checkpoints, durability);
    for (index, (step, settle)) in steps.iter().enumerate() {
        let _context = Context { seed, done: &all[..=index] };
        session.act(*step);
        let sight = if *settle { session.settle() } else { session.look() };
        session.model.check(&sight, *settle);
    }
    session.host.close();
}

/// Sessions of 50 steps, so many steps in all; the long form for a soak.
fn sessions(checkpoints: Checkpoints, durability: Durability, first: u64) {
    sessions_in(&PYTHON, checkpoints, durability, first);
}

fn sessions_in(
    language: &'static SessionLanguage,
    checkpoints: Checkpoints,
    durability: Durability,
    first: u64,
) {
    let asked = std::env::var("STASIS_SEED").ok().and_then(|seed| seed.parse().ok());
    if let Some(seed) = asked {
        return session(language, seed, checkpoints, durability);
    }
    let soak = std::env::var_os("STASIS_SOAK").is_some();
    let first = if soak { u64::from(std::process::id()) << 16 } else { first };
    let count = if soak { 50 } else { 2 };
    (first..first + count).for_each(|seed| session(language, seed, checkpoints, durability));
}

const STEPS: usize = 50;

#[test]
fn exact_in_memory() {
    sessions(Checkpoints::Exact, Durability::Memory, 100);
}

#[test]
fn exact_on_disk() {
    sessions(Checkpoints::Exact, Durability::Local, 200);
}

#[test]
fn grouped_in_memory() {
    sessions(Checkpoints::Grouped, Durability::Memory, 300);
}

#[test]
fn grouped_on_disk() {
    sessions(Checkpoints::Grouped, Durability::Local, 400);
}

#[test]
fn javascript_exact_in_memory() {
    sessions_in(&JAVASCRIPT, Checkpoints::Exact, Durability::Memory, 600);
}

#[test]
fn javascript_grouped_on_disk() {
    sessions_in(&JAVASCRIPT, Checkpoints::Grouped, Durability::Local, 700);
}

/// The order of things does not depend on who gets a processor.
#[test]
fn exact_under_busy_loops() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let ended = std::panic::catch_unwind(|| {
            sessions(Checkpoints::Exact, Durability::Memory, 500);
        });
        over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Not a test: the host of a session.
#[test]
#[ignore = "started by another test"]
fn host_process() {
    let Some(dir) = std::env::var_os("SESSION_DIR") else { return };
    let name = std::env::var("SESSION_MACHINE").expect("a name");
    let language = std::env::var("SESSION_LANGUAGE").expect("a language");
    host::serve(Path::new(&dir), &name, &language);
}
