//! System V IPC of the machine, among its objects, and which mappings are attachments.

use super::fds::Objects;
use super::mappings::{read_segment, segment_key};
use crate::error::{ErrorContext, Result};
use crate::sysv;
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_store::Sink;

pub fn read(tree: &Tree, objects: &mut Objects, sink: &mut Sink) -> Result<()> {
    let found = sysv::read(&tree.walls.init)?;
    let add = |objects: &mut Objects, kind: ObjectKind| {
        objects.add(Object { flags: 0, owner: None, kind });
    };
    for (name, removed, file) in found.memory {
        let meta = file.metadata().doing(|| "look at shared memory".into())?;
        let contents = read_segment(&file, SegmentKind::Sysv { id: name.id }, sink)?;
        let segment = objects.segments.add(segment_key(&meta), contents);
        add(objects, ObjectKind::SysvMemory(SysvMemory { name, segment, removed }));
    }
    for set in found.semaphores {
        add(objects, ObjectKind::SysvSemaphores(set));
    }
    for queue in found.queues {
        add(objects, ObjectKind::SysvQueue(queue));
    }
    Ok(())
}
