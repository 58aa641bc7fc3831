//! Making sockets again.
//!
//! Converts the sockets of an image to steps for the machine's init, in an order in which each
//! finds its requirements:
//!
//!   connections ─► names, listeners ─► waiting clients ─► data ─► one-way peers ─► ends, options
//!
//! Connections come before the names: an accepted socket has the name of its listener, so a
//! listener is made under that name and closed again before the real one needs the name. The image
//! is not trusted: a missing or invalid peer is an error here, and all steps run inside the
//! machine's namespaces.

mod inet;
mod plan;
mod unix;

use crate::error::{Error, ErrorContext, Result};
use crate::spawner::Init;
use plan::Planner;
use stasis_image::model::*;
use stasis_spawner::protocol::InitRequest;
use stasis_spawner::socket_plan::{self, SocketPlan};
use std::os::fd::{AsFd, OwnedFd};

/// Makes every socket of an image: its index among the objects, and its descriptor.
pub fn make(manifest: &Manifest, init: &Init) -> Result<Vec<(usize, OwnedFd)>> {
    let plan = plan_for(&manifest.objects)?;
    if plan.keep.is_empty() {
        return Ok(Vec::new());
    }
    let packed = socket_plan::pack(&plan).doing(|| "plan sockets".into())?;
    let fds = init.ask(&InitRequest::MakeSockets, &[packed.as_fd()])?;
    if fds.len() != plan.keep.len() {
        return Err(Error::Gone);
    }
    Ok(plan.keep.iter().map(|slot| *slot as usize).zip(fds).collect())
}

fn plan_for(objects: &[Object]) -> Result<SocketPlan> {
    let sockets = objects.iter().enumerate().filter_map(|(index, object)| match &object.kind {
        ObjectKind::Socket(socket) => Some((index as u32, &**socket)),
        _ => None,
    });
    let mut planner = Planner::new(sockets.collect(), objects.len() as u32);
    unix::plan(&mut planner)?;
    inet::plan(&mut planner)?;
    planner.finish();
    Ok(planner.plan)
}

#[cfg(test)]
mod tests;
