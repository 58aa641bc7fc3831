//! The events of a machine's life. Each leaves programs whose whole conversation must equal that of
//! an undisturbed run.

use crate::common::{AFTER, Failure, Result};
use crate::stage::Stage;
use stasis_engine::{Error, Lazy};

pub struct Event {
    pub name: &'static str,
    /// Behind all walls, as machines are.
    pub walled: bool,
    pub run: fn(&mut Stage) -> Result<()>,
}

pub const EVENTS: &[Event] = &[
    Event { name: "plain", walled: false, run: plain },
    Event { name: "capture", walled: false, run: capture },
    Event { name: "capture_restore", walled: false, run: capture_restore },
    Event { name: "capture_last", walled: false, run: capture_last },
    Event { name: "source_alive", walled: false, run: source_alive },
    Event { name: "two_at_once", walled: false, run: two_at_once },
    Event { name: "branch_of_branch", walled: false, run: branch_of_branch },
    Event { name: "captured_twice", walled: false, run: captured_twice },
    Event { name: "recaptured", walled: false, run: recaptured },
    Event { name: "chain_5", walled: false, run: |stage| chain(stage, 5) },
    Event { name: "chain_20", walled: false, run: |stage| chain(stage, 20) },
    Event { name: "parked", walled: false, run: parked },
    Event { name: "parked_branch", walled: false, run: parked_branch },
    Event { name: "flattened", walled: false, run: flattened },
    Event { name: "on_demand", walled: false, run: on_demand },
    Event { name: "cache_dropped", walled: false, run: cache_dropped },
    Event { name: "engine_restart", walled: false, run: engine_restart },
    Event { name: "refused", walled: false, run: refused },
    Event { name: "walled", walled: true, run: capture_restore },
    Event { name: "walled_two_at_once", walled: true, run: two_at_once },
    Event { name: "walled_parked", walled: true, run: parked_branch },
];

/// Nothing happens. A program that fails here is a bad program.
fn plain(stage: &mut Stage) -> Result<()> {
    stage.begin()?.speak(AFTER)?;
    stage.finish_source()
}

/// The source runs on as if nothing had happened.
fn capture(stage: &mut Stage) -> Result<()> {
    stage.begin()?;
    stage.capture_source()?;
    stage.source.as_mut().expect("begun").speak(AFTER)?;
    stage.finish_source()
}

fn capture_restore(stage: &mut Stage) -> Result<()> {
    let saved = stage.only_image()?;
    stage.restored_copy_is_right(&saved, AFTER)
}

/// The source ends in the instant of its capture.
fn capture_last(stage: &mut Stage) -> Result<()> {
    stage.begin()?;
    let source = stage.source.take().expect("begun");
    let saved = stage.bench.capture_last(source)?;
    stage.restored_copy_is_right(&saved, AFTER)
}

/// Source and copy go on side by side, and neither sees what the other does.
fn source_alive(stage: &mut Stage) -> Result<()> {
    stage.begin()?;
    let saved = stage.capture_source()?;
    let mut copy = stage.bench.restore(&saved)?;
    let source = stage.source.as_mut().expect("begun");
    for _ in 0..2 {
        source.step()?;
        copy.check()?;
    }
    copy.speak(&["step", "digest"])?;
    source.speak(&["check", "digest"])?;
    stage.finish(copy)?;
    stage.finish_source()
}

/// Two restores run at the same time, and then differ.
fn two_at_once(stage: &mut Stage) -> Result<()> {
    let saved = stage.only_image()?;
    let bench = &stage.bench;
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| bench.restore(&saved));
        (bench.restore(&saved), other.join())
    });
    let mut first = first?;
    let mut second = second.map_err(|_| Failure::Program("a restore panicked".into()))??;
    first.check()?;
    second.speak(&["step", "check"])?;
    first.speak(AFTER)?;
    second.speak(&["step", "digest"])?;
    stage.finish(first)?;
    stage.finish(second)
}

/// source ─► image 1 ─► branch ─► image 2 ─► branch of the branch; then image 1 once more.
fn branch_of_branch(stage: &mut Stage) -> Result<()> {
    let trunk = stage.only_image()?;
    let mut branch = stage.bench.restore(&trunk)?;
    branch.speak(&["step", "step"])?;
    let twig = stage.bench.capture(&branch)?;
    let mut leaf = stage.bench.restore(&twig)?;
    leaf.speak(AFTER)?;
    branch.speak(&["check", "digest"])?;
    stage.restored_copy_is_right(&trunk, AFTER)?;
    stage.finish(leaf)?;
    stage.finish(branch)
}

/// Calls that the source was blocked in, and that were interrupted once already, are interrupted
/// again.
fn captured_twice(stage: &mut Stage) -> Result<()> {
    stage.begin()?;
    stage.capture_source()?;
    let saved = stage.only_image_of_source()?;
    stage.restored_copy_is_right(&saved, AFTER)
}

/// A copy is captured before its first question: when a restore returns, nothing of it may still be
/// under way.
fn recaptured(stage: &mut Stage) -> Result<()> {
    let saved = stage.only_image()?;
    let copy = stage.bench.restore(&saved)?;
    let again = stage.bench.capture(&copy)?;
    copy.kill()?;
    stage.restored_copy_is_right(&again, AFTER)
}

/// Every image a difference to the one before; every other time the program is the restored one.
fn chain(stage: &mut Stage, length: usize) -> Result<()> {
    stage.begin()?;
    let mut program = stage.source.take().expect("begun");
    for link in 0..length {
        program.step()?;
        let saved = stage.bench.capture(&program)?;
        if link % 2 == 1 {
            program.kill()?;
            program = stage.bench.restore(&saved)?;
        }
    }
    program.speak(&["digest", "check"])?;
    stage.finish(program)
}

/// From a parked template three times, and once more after it was let go.
fn parked(stage: &mut Stage) -> Result<()> {
    let saved = stage.only_image()?;
    stage.bench.park(&saved)?;
    let mut copies = Vec::new();
    for _ in 0..3 {
        copies.push(stage.bench.restore(&saved)?);
    }
    for mut copy in copies {
        copy.speak(AFTER)?;
        stage.finish(copy)?;
    }
    if !stage.bench.engine().evict(saved.image.id) {
        return Err(Failure::Program("the template was not there to be let go".into()));
    }
    stage.restored_copy_is_right(&saved, AFTER)
}

/// A branch's image restored from its parent's template, and from a template of its own, which is
/// a fork of the parent's plus the difference.
fn parked_branch(stage: &mut Stage) -> Result<()> {
    let trunk = stage.only_image()?;
    stage.bench.park(&trunk)?;
    let mut branch = stage.bench.restore(&trunk)?;
    branch.step()?;
    let twig = stage.bench.capture(&branch)?;
    branch.kill()?;
    stage.restored_copy_is_right(&twig, AFTER)?;
    stage.bench.park(&twig)?;
    stage.restored_copy_is_right(&twig, AFTER)?;
    stage.bench.engine().evict(trunk.image.id);
    stage.restored_copy_is_right(&twig, AFTER)
}

/// An image made of several packs, rewritten to one.
fn flattened(stage: &mut Stage) -> Result<()> {
    let trunk = stage.only_image()?;
    let mut branch = stage.bench.restore(&trunk)?;
    branch.step()?;
    let twig = stage.bench.capture(&branch)?;
    branch.kill()?;
    let flat = stage.bench.flatten(&twig)?;
    if flat.image.manifest.meta.packs.len() > 1 {
        return Err(Failure::Program("a flattened image has several packs".into()));
    }
    stage.restored_copy_is_right(&flat, AFTER)
}

/// All of memory that can be is filled while the program runs, twice in a row.
fn on_demand(stage: &mut Stage) -> Result<()> {
    let saved = stage.only_image()?;
    stage.bench.restart_with(Lazy { total: 0, mapping: 0 })?;
    let saved = stage.bench.reread(&saved)?;
    let mut copy = stage.bench.restore(&saved)?;
    copy.step()?;
    let again = stage.bench.capture(&copy)?;
    copy.kill()?;
    stage.restored_copy_is_right(&again, AFTER)
}

/// The image comes from the disk alone.
fn cache_dropped(stage: &mut Stage) -> Result<()> {
    let saved = stage.only_image()?;
    stage.bench.drop_caches()?;
    let saved = stage.bench.reread(&saved)?;
    stage.restored_copy_is_right(&saved, AFTER)
}

/// Another engine on the same directory knows the image.
fn engine_restart(stage: &mut Stage) -> Result<()> {
    let saved = stage.only_image()?;
    stage.bench.restart()?;
    let saved = stage.bench.reread(&saved)?;
    stage.restored_copy_is_right(&saved, AFTER)
}

/// Unsupported state is refused by name, and the source does not notice.
fn refused(stage: &mut Stage) -> Result<()> {
    stage.begin()?;
    match stage.capture_source() {
        Err(Failure::Engine { error: Error::Refused { pid, what }, .. }) => {
            let named = what.strip_prefix("fd ").and_then(|rest| rest.split_once(": "));
            let fine = named.is_some_and(|(fd, kind)| fd.parse::<u32>().is_ok() && kind.len() > 3);
            if pid <= 0 || !fine {
                let text = format!("the refusal names no process, fd and kind: {pid}: {what}");
                return Err(Failure::Program(text));
            }
        }
        Err(other) => return Err(other),
        Ok(_) => return Err(Failure::Program("captured what cannot be restored".into())),
    }
    stage.source.as_mut().expect("begun").speak(AFTER)?;
    stage.finish_source()
}
