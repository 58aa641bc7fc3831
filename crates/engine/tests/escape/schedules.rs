//! Schedules of hostile acts, drawn from a seed (`tests/escape/schedule.c`), while the engine
//! captures, restores and branches again and again.
//!
//!   seed ─► acts at any moment ─┬► every call ends within its deadline, refusals have names
//!                               ├► no page and no file of any image holds the host's canary
//!                               ├► no process made a call that no machine may make
//!                               └► a bystander answers and is captured, the host starts programs
//!
//! A few seconds with some known seeds; `STASIS_SEED` replays another. With `STASIS_SOAK`
//! new seeds are drawn for five minutes, or for `STASIS_SOAK_MINUTES`.

use crate::machine::{Lab, Machine, descriptors, launch};
use libtest_mimic::{Failed, Trial};
use stasis_engine::{DiskLimit, Engine, Error, Image, LaunchSpec, OutsideFds, Tree, WallsConfig};
use stasis_image::PAGE_SIZE;
use stasis_image::pack::PackReader;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const KNOWN: [u64; 3] = [1, 2, 3];
/// How long one schedule runs.
const SPAN: Duration = Duration::from_secs(4);
/// For one call to the engine, or one answer of a machine. Against hangs on a busy host.
const DEADLINE: Duration = Duration::from_secs(60);
/// Acceptable errors of a capture or a restore of such a program.
const REFUSALS: [&str; 3] = ["capture.refused", "capture.unsettled", "image.unfit"];

pub fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("STASIS_SEED") {
        Some(seed) => vec![seed],
        None => KNOWN.to_vec(),
    };
    let known = seeds.into_iter().map(|seed| {
        let lab = lab.clone();
        Trial::test(format!("schedules::seed_{seed}"), move || run(&lab, seed))
    });
    let long = std::env::var_os("STASIS_SOAK").is_some();
    let minutes = number("STASIS_SOAK_MINUTES").unwrap_or(5);
    let lab = lab.clone();
    let soak = Trial::test("schedules::soak", move || soak(&lab, minutes));
    known.chain([soak.with_ignored_flag(!long)]).collect()
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish() >> 1
}

fn soak(lab: &Lab, minutes: u64) -> Result<(), Failed> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60 * minutes) {
        run(lab, random())?;
    }
    Ok(())
}

fn run(lab: &Lab, seed: u64) -> Result<(), Failed> {
    let mut schedule = Schedule::start(lab, seed)?;
    let start = Instant::now();
    let mut round = 0;
    let done = loop {
        if start.elapsed() >= SPAN {
            break schedule.end(lab);
        }
        round += 1;
        if let Err(error) = schedule.round(round) {
            break Err(error);
        }
    };
    let counts = &schedule.counts;
    eprintln!("seed {seed}: {round} rounds, {counts:?}");
    done.map_err(|error| {
        format!(
            "seed {seed}, round {round}: {} (STASIS_SEED={seed})",
            error.message().unwrap_or("")
        )
        .into()
    })
}

/// The machine that runs a schedule, and its line.
struct Hostile {
    tree: Arc<Tree>,
    line: BufReader<UnixStream>,
}

struct Schedule {
    engine: Arc<Engine>,
    bystander: Machine,
    hostile: Hostile,
    canary: String,
    last: Option<Image>,
    counts: BTreeMap<String, u32>,
}

impl Schedule {
    fn start(lab: &Lab, seed: u64) -> Result<Schedule, Failed> {
        let canary = format!("{:016x}{:016x}-canary", random(), random());
        let secret = lab.path().join("canary");
        std::fs::write(&secret, &canary)?;
        let mut walls = WallsConfig::default();
        walls.limits.memory = Some(512 << 20);
        walls.limits.pids = Some(600);
        walls.limits.disk = Some(DiskLimit { bytes: 256 << 20, files: 50_000 });
        let engine = lab.engine(walls);
        let bystander = launch(&engine);
        let (ours, fds) = descriptors();
        let argv = vec!["schedule".into(), seed.to_string(), secret.display().to_string()];
        let program = LaunchSpec {
            path: "/bin/schedule".into(),
            argv,
            cwd: "/tmp".into(),
            ..LaunchSpec::default()
        };
        let outside = OutsideFds { fds, numbers: vec![0, 1, 2] };
        let tree = Arc::new(engine.launch("escape", program, outside)?);
        let mut hostile = Hostile { tree, line: line(ours)? };
        eprintln!("seed {seed}: {}", hostile.hear()?);
        let counts = BTreeMap::new();
        Ok(Schedule { engine, bystander, hostile, canary, last: None, counts })
    }

    fn round(&mut self, round: u32) -> Result<(), Failed> {
        if let Some(image) = self.capture(self.hostile.tree.clone())? {
            self.look_for_canary(&image)?;
            self.last = Some(image);
        }
        self.hostile.answers_fine()?;
        if let Some(image) = self.last.clone().filter(|_| round.is_multiple_of(2)) {
            self.branch(image, round)?;
        }
        match self.bystander.ask("init_shown") {
            said if said == "ENOENT" => {}
            said => return Err(format!("the bystander says `{said}`").into()),
        }
        if round.is_multiple_of(4) {
            starts_programs()?;
        }
        Ok(())
    }

    /// A copy lives beside its source, is captured too, and every other time goes on in its place.
    fn branch(&mut self, image: Image, round: u32) -> Result<(), Failed> {
        let (engine, (ours, fds)) = (self.engine.clone(), descriptors());
        let restored = within("a restore", move || engine.restore(&image, fds))?;
        let Some(tree) = self.count("restore", restored)? else { return Ok(()) };
        let mut copy = Hostile { tree: Arc::new(tree), line: line(ours)? };
        copy.answers_fine()?;
        if let Some(image) = self.capture(copy.tree.clone())? {
            self.look_for_canary(&image)?;
        }
        if round.is_multiple_of(4) {
            std::mem::swap(&mut self.hostile, &mut copy);
        }
        within("ending a machine", move || drop(copy))
    }

    fn capture(&mut self, tree: Arc<Tree>) -> Result<Option<Image>, Failed> {
        let engine = self.engine.clone();
        let captured = within("a capture", move || engine.capture(&tree))?;
        Ok(self.count("capture", captured)?.map(|captured| captured.image))
    }

    fn count<T>(&mut self, what: &str, result: Result<T, Error>) -> Result<Option<T>, Failed> {
        let said = result.as_ref().map_or_else(reason, |_| "ok".into());
        *self.counts.entry(format!("{what}: {said}")).or_default() += 1;
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if REFUSALS.contains(&error.code()) => Ok(None),
            Err(error) => Err(format!("{what}: [{}] {error}", error.code()).into()),
        }
    }

    fn look_for_canary(&self, image: &Image) -> Result<(), Failed> {
        let contents = self.engine.contents(image)?;
        for entry in contents.own() {
            let bytes = contents.read(&entry.path, 1 << 16).ok().flatten().unwrap_or_default();
            if holds(&bytes, &self.canary) {
                return Err(format!("{} holds the host's canary", entry.path).into());
            }
        }
        Ok(())
    }

    fn end(&mut self, lab: &Lab) -> Result<(), Failed> {
        self.hostile.answers_fine()?;
        let engine = self.engine.clone();
        let bystander = self.bystander.tree.take().expect("a machine");
        within("the bystander's capture", move || engine.capture(&bystander).map(drop))??;
        let tree = self.hostile.tree.clone();
        within("ending the machine", move || Arc::into_inner(tree).map(drop))?;
        for_packs(lab.path(), &mut |page| match holds(page, &self.canary) {
            true => Err("a page of an image holds the host's canary".into()),
            false => Ok(()),
        })
    }
}

impl Hostile {
    fn hear(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        let heard = self.line.read_line(&mut line);
        heard.map_err(|error| format!("the machine does not answer: {error}"))?;
        Ok(line.trim_end().to_owned())
    }

    fn answers_fine(&mut self) -> Result<(), Failed> {
        if let Err(error) = writeln!(self.line.get_mut(), "?") {
            let (usage, disk) = (self.tree.usage(), self.tree.disk_excess());
            return Err(format!("the machine ended: {error} ({usage:?}, disk {disk:?})").into());
        }
        match self.hear()? {
            said if said == "fine" => Ok(()),
            said => Err(format!("the machine says `{said}`").into()),
        }
    }
}

/// A refusal without the numbers in it, so that the same ones are counted together.
fn reason(error: &Error) -> String {
    let text = error.to_string().replace(|letter: char| letter.is_ascii_digit(), "");
    format!("[{}] {}", error.code(), text.chars().take(60).collect::<String>())
}

fn line(ours: UnixStream) -> Result<BufReader<UnixStream>, Failed> {
    ours.set_read_timeout(Some(DEADLINE))?;
    Ok(BufReader::new(ours))
}

/// The result of a call, or that it does not return.
fn within<T: Send + 'static>(
    what: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(call()));
    told.recv_timeout(DEADLINE).map_err(|_| format!("{what} hangs, or crashed").into())
}

fn starts_programs() -> Result<(), Failed> {
    let started = within("starting a program", || Command::new("true").status())?;
    if started?.success() { Ok(()) } else { Err("the host starts no programs".into()) }
}

fn holds(bytes: &[u8], canary: &str) -> bool {
    bytes.windows(canary.len()).any(|window| window == canary.as_bytes())
}

/// Every page of every pack below a directory.
fn for_packs(dir: &Path, look: &mut dyn FnMut(&[u8]) -> Result<(), Failed>) -> Result<(), Failed> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.file_name() != "run" {
            for_packs(&entry.path(), look)?;
        }
        let Some(file) = kind.is_file().then(|| File::open(entry.path())).transpose()? else {
            continue;
        };
        let len = file.metadata()?.len();
        let Ok(pack) = PackReader::open(file, len, None) else { continue };
        let mut page = vec![0; PAGE_SIZE];
        for slot in 0..pack.pages() {
            if pack.read_unverified(slot, &mut page).is_ok() {
                look(&page)?;
            }
        }
    }
    Ok(())
}
