//! Templates: parked processes that hold an image's memory and have never run its program.
//!
//! A template runs only the interpreter's loop. Asked to, it forks: into the walls of a new tree,
//! or as another template that then takes on a difference. The blank template holds nothing and
//! is where a chain begins. Dropping a template ends it; it can be built again from its image.

use crate::error::{Error, ErrorContext, Result};
use crate::plan::{Layout, MemoryPlan, plan_memory};
use crate::prepared::PreparedShare;
use crate::proc;
use crate::track;
use parking_lot::Mutex;
use stasis_image::ImageId;
use stasis_image::model::{Backing, KernelMapping, MappedFile, PackRef, PageRun, Vma, VmaTraits};
use stasis_spawner::layout;
use stasis_spawner::protocol::CloneOrder;
use stasis_store::Image;
use stasis_sys::{fds, libc, process, socket, uffd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a template may take to fork, which takes it milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Template {
    pub pid: i32,
    pidfd: OwnedFd,
    control: Mutex<OwnedFd>,
    /// Tracks its memory, and that of its forks with it.
    uffd: Option<OwnedFd>,
    memory: TemplateMemory,
    /// How many templates it was forked from, one from another. The kernel's bookkeeping of
    /// shared pages grows with it.
    pub depth: u32,
    /// Whether it will be forked again and again, so that forks ahead are worth it.
    pub stays: bool,
    /// About how much memory it has beside that of the template it was forked from.
    pub adds: u64,
    /// Of the memory for what is prepared, if it is only held for a while.
    share: Option<PreparedShare>,
    /// How the image restored last is reached from here: many are made of one in a row.
    last_plan: Mutex<Option<(ImageId, Arc<MemoryPlan>)>>,
}

/// The source of a template's memory.
pub enum TemplateMemory {
    /// The kernel's own mappings, which every process has.
    Blank(Vec<Vma>),
    /// The memory of an image's root process, without what belongs to one tree only.
    Image { image: Image, vmas: Vec<Vma>, root: i32 },
}

const NO_RUNS: &[PageRun] = &[];
const NO_PACKS: &[PackRef] = &[];
const NO_FILES: &[MappedFile] = &[];

impl Template {
    pub fn blank(pid: i32, pidfd: OwnedFd, control: OwnedFd) -> Result<Template> {
        // it says nothing when it is ready; its first answer to an order shows it
        let mut template = Template::new(pid, pidfd, control, TemplateMemory::Blank(Vec::new()), 0);
        template.memory = TemplateMemory::Blank(template.wait_until_swept()?);
        Ok(template)
    }

    /// A blank starts with the spawner's mappings and unmaps them as its first act.
    fn wait_until_swept(&self) -> Result<Vec<Vma>> {
        for _ in 0..2000 {
            let maps = proc::parse_maps(&proc::read_text(self.pid, "maps")?).unwrap_or_default();
            let left: Vec<Vma> = maps.iter().filter_map(kernel_vma).collect();
            let own = |map: &proc::Mapping| {
                map.start >= layout::RESERVED && map.end <= layout::RESERVED_END
            };
            if maps.iter().all(|map| own(map) || map.path.starts_with("[v")) {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Err(io::Error::other("it did not come up")).doing(|| "start a blank template".into())
    }

    pub fn new(
        pid: i32,
        pidfd: OwnedFd,
        control: OwnedFd,
        memory: TemplateMemory,
        depth: u32,
    ) -> Template {
        let (control, last_plan) = (Mutex::new(control), Mutex::default());
        let (uffd, share) = (None, None);
        Template {
            pid,
            pidfd,
            control,
            uffd,
            memory,
            depth,
            stays: true,
            adds: 0,
            share,
            last_plan,
        }
    }

    /// Has its forks inherit that their writes are tracked; they do without if that fails.
    pub fn tracked_by(mut self, uffd: Option<OwnedFd>) -> Template {
        let Layout { vmas, runs, .. } = self.layout();
        let ranges = track::ranges(vmas, runs);
        let armed = |uffd: &OwnedFd| track::arm(uffd.as_fd(), self.pid, &ranges).is_ok();
        self.uffd = uffd.filter(armed);
        self
    }

    pub fn is_tracked(&self) -> bool {
        self.uffd.is_some()
    }

    pub fn for_a_while(mut self, share: PreparedShare) -> Template {
        (self.stays, self.share) = (false, Some(share));
        self
    }

    pub fn image(&self) -> Option<&Image> {
        match &self.memory {
            TemplateMemory::Image { image, .. } => Some(image),
            TemplateMemory::Blank(_) => None,
        }
    }

    /// The memory a fork of this template starts with.
    pub fn layout(&self) -> Layout<'_> {
        match &self.memory {
            TemplateMemory::Blank(vmas) => {
                Layout { vmas, runs: NO_RUNS, packs: NO_PACKS, files: NO_FILES, guards: &[] }
            }
            TemplateMemory::Image { image, vmas, root } => {
                let memory = image.manifest.memory.iter().find(|memory| memory.pid == *root);
                Layout {
                    vmas,
                    runs: memory.map_or(NO_RUNS, |memory| &memory.runs),
                    packs: &image.manifest.meta.packs,
                    files: &image.manifest.meta.mapped_files,
                    guards: memory.map_or(&[], |memory| &memory.guards),
                }
            }
        }
    }

    /// How a fork's memory becomes that of an image's root, whose layout is `target`.
    pub fn plan_for(&self, image: ImageId, target: Layout) -> Arc<MemoryPlan> {
        let last = || self.last_plan.lock();
        if let Some((_, plan)) = last().as_ref().filter(|(id, _)| *id == image) {
            return plan.clone();
        }
        let plan = Arc::new(plan_memory(self.layout(), target));
        *last() = Some((image, plan.clone()));
        plan
    }

    /// Orders a clone, and takes the userfaultfd it inherits. `fds` are its initial descriptors,
    /// the pid namespace first.
    pub fn clone_process(&self, order: &CloneOrder, fds: &[BorrowedFd]) -> Result<Option<OwnedFd>> {
        let control = self.control.lock();
        let exchange = || -> io::Result<(Option<OwnedFd>, i64)> {
            socket::send(control.as_fd(), &order.to_bytes(layout::ORDER), fds)?;
            let end = Instant::now() + PATIENCE;
            let inherited = self.uffd.as_ref().map(|uffd| inherited(uffd, control.as_fd(), end));
            let inherited = inherited.transpose()?.flatten();
            wait(&[control.as_fd()], end)?;
            let mut answer = [0u8; 8];
            match socket::receive(control.as_fd(), &mut answer)?.len {
                8 => Ok((inherited, i64::from_ne_bytes(answer))),
                _ => Err(io::Error::other("the template has ended")),
            }
        };
        let exchanged = exchange().inspect_err(|_| {
            // an answer that comes late would be taken for that of the next order
            let _ = process::pidfd_kill(self.pidfd.as_fd(), libc::SIGKILL);
        });
        let (inherited, answer) = exchanged.doing(|| "order a clone from a template".into())?;
        match answer {
            pid if pid > 0 => Ok(inherited),
            error => Err(Error::Step {
                step: "fork from the template".into(),
                source: io::Error::from_raw_os_error(-error as i32),
            }),
        }
    }
}

impl Template {
    /// Whether nothing can be forked from it any more.
    pub fn has_ended(&self) -> bool {
        process::pidfd_wait(self.pidfd.as_fd(), 0).unwrap_or(true)
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        let _ = process::pidfd_kill(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

/// The userfaultfd of the new clone, which continues when this is taken. None comes if the fork
/// fails, which the template reports.
fn inherited(uffd: &OwnedFd, control: BorrowedFd, end: Instant) -> io::Result<Option<OwnedFd>> {
    wait(&[uffd.as_fd(), control], end)?;
    Ok(match uffd::read_event(uffd.as_fd())? {
        Some(uffd::UffdEvent::Fork { fd }) => Some(fds::inherited(fd)),
        _ => None,
    })
}

/// Waits until one of these can be read.
fn wait(any: &[BorrowedFd], end: Instant) -> io::Result<()> {
    const LOOK_MS: i32 = 1000;
    // a signal ends a look early
    while !fds::poll_many(any, LOOK_MS)?.contains(&true) {
        if Instant::now() > end {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn kernel_vma(map: &proc::Mapping) -> Option<Vma> {
    let kind = match map.path.as_str() {
        "[vdso]" => KernelMapping::Vdso,
        "[vvar]" => KernelMapping::Vvar,
        "[vvar_vclock]" => KernelMapping::VvarVclock,
        _ => return None,
    };
    Some(Vma {
        start: map.start,
        end: map.end,
        prot: map.prot,
        backing: Backing::Kernel(kind),
        traits: VmaTraits::default(),
        name: None,
    })
}
