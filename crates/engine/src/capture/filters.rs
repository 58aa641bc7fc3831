//! Seccomp filters: the machine's wall, and what programs put on top of it.
//!
//! The kernel hands a filter out as it was installed, to a tracer with the host's privileges. The
//! same few filters are on every process, so the image keeps each once. Refused: strict mode, and
//! threads of one process that are under different filters.

use super::refuse;
use crate::error::{ErrorContext, Result};
use crate::freeze::{Frozen, FrozenLive, FrozenProcess};
use stasis_image::model::*;
use stasis_sys::ptrace;

const MODE_NONE: i64 = 0;
const MODE_FILTER: i64 = 2;

/// Reads the filters of all processes; the list that each process's numbers refer to.
pub fn read_all(frozen: &Frozen, processes: &mut [Process]) -> Result<Vec<SeccompFilter>> {
    let mut known: Vec<SeccompFilter> = Vec::new();
    for (process, own) in frozen.processes.iter().zip(processes) {
        if let (Some(live), ProcessState::Live(state)) = (&process.live, &mut own.state) {
            let filters = read(process, live)?;
            state.filters = filters.into_iter().map(|filter| number(&mut known, filter)).collect();
        }
    }
    Ok(known)
}

fn number(known: &mut Vec<SeccompFilter>, filter: SeccompFilter) -> u32 {
    let index = known.iter().position(|own| *own == filter).unwrap_or_else(|| {
        known.push(filter);
        known.len() - 1
    });
    index as u32
}

fn read(process: &FrozenProcess, live: &FrozenLive) -> Result<Vec<SeccompFilter>> {
    let mut first: Option<Vec<SeccompFilter>> = None;
    for thread in &live.threads {
        let filters = match thread.status.number("Seccomp").unwrap_or(MODE_NONE) {
            MODE_NONE => Vec::new(),
            MODE_FILTER => of_thread(thread.tid)?,
            _ => return Err(refuse(process, "seccomp's strict mode is not supported")),
        };
        match &first {
            None => first = Some(filters),
            Some(first) if *first == filters => {}
            Some(_) => return Err(refuse(process, "its threads are under different filters")),
        }
    }
    Ok(first.unwrap_or_default())
}

/// Oldest first, as they are to be installed again.
fn of_thread(tid: i32) -> Result<Vec<SeccompFilter>> {
    let mut filters = Vec::new();
    while let Some(program) = ptrace::seccomp_filter(tid, filters.len())
        .doing(|| format!("read the filters of thread {tid}"))?
    {
        filters.push(SeccompFilter(program));
    }
    filters.reverse();
    Ok(filters)
}
