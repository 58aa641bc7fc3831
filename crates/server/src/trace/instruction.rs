//! The spans of instructions, from the events of their machines.
//!
//! An instruction's span lasts from acceptance to result; its phases are child spans. Its
//! checkpoint may come later and be shared by several instructions. The number of open spans is
//! bounded; an instruction past the bound has none and is counted as dropped.

use super::exporter::ExportCounts;
use super::request::caused;
use opentelemetry::trace::{Span, SpanContext, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use parking_lot::{Mutex, MutexGuard};
use stasis_machine::{MachineId, ObservedEvent};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

/// Maximum instructions traced at once.
const MOST: usize = 16_384;
/// Unsaved instructions remembered per machine: the last ones.
const UNSAVED: usize = 64;

#[derive(Debug)]
pub struct InstructionSpans {
    tracer: SdkTracer,
    counts: Arc<ExportCounts>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    machines: HashMap<MachineId, Own>,
    open: usize,
}

/// Trace state of one machine.
#[derive(Debug, Default)]
struct Own {
    taken_up: Option<u64>,
    open: HashMap<u64, Open>,
    unsaved: VecDeque<Trail>,
    saving: Option<SystemTime>,
}

/// An unfinished instruction. Its spans end when they are dropped.
#[derive(Debug)]
struct Open {
    trail: Trail,
    part: Option<SdkSpan>,
    ran: bool,
    span: SdkSpan,
}

/// Attributes that make a span part of an instruction.
#[derive(Debug, Clone)]
struct Trail {
    of: SpanContext,
    labels: Vec<KeyValue>,
}

impl InstructionSpans {
    pub fn new(tracer: SdkTracer, counts: Arc<ExportCounts>) -> InstructionSpans {
        InstructionSpans { tracer, counts, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    pub fn see(&self, machine: MachineId, moment: ObservedEvent<'_>) {
        let mut held = self.held();
        if let ObservedEvent::Queued { seq, name, account, cause } = moment {
            let labels = vec![
                KeyValue::new("stasis.machine", name.to_string()),
                KeyValue::new("stasis.seq", seq as i64),
                KeyValue::new("stasis.account", account.to_owned()),
            ];
            return self.queued(&mut held, machine, seq, labels, &caused(cause));
        }
        let Some(mut own) = held.machines.remove(&machine) else { return };
        let before = own.open.len();
        match moment {
            ObservedEvent::Removed => own = Own::default(),
            moment => self.follow(&mut own, &moment),
        }
        held.open -= before - own.open.len();
        if !own.is_over() {
            held.machines.insert(machine, own);
        }
    }

    fn part(&self, trail: &Trail, name: &'static str, since: SystemTime) -> SdkSpan {
        let builder = self.tracer.span_builder(name);
        let builder = builder.with_start_time(since).with_attributes(trail.labels.clone());
        let parent = Context::new().with_remote_span_context(trail.of.clone());
        builder.start_with_context(&self.tracer, &parent)
    }

    fn queued(
        &self,
        held: &mut Held,
        machine: MachineId,
        seq: u64,
        labels: Vec<KeyValue>,
        parent: &Context,
    ) {
        if held.open >= MOST {
            return self.counts.dropped.inc();
        }
        let builder = self.tracer.span_builder("instruction").with_attributes(labels.clone());
        let span = builder.start_with_context(&self.tracer, parent);
        // the caller, or a sampler, excludes this trace
        if !span.is_recording() {
            return;
        }
        let trail = Trail { of: span.span_context().clone(), labels };
        let part = Some(self.part(&trail, "queue", SystemTime::now()));
        let open = Open { span, trail, part, ran: false };
        held.machines.entry(machine).or_default().open.insert(seq, open);
        held.open += 1;
    }

    fn follow(&self, own: &mut Own, moment: &ObservedEvent<'_>) {
        match *moment {
            ObservedEvent::TakenUp(seq) => {
                // a span that never ended was cut short by a bug of ours
                if let Some(before) = own.taken_up.replace(seq).filter(|before| *before != seq) {
                    own.open.remove(&before);
                }
                self.next(own, None);
            }
            ObservedEvent::Waking(reason) => self.next(own, Some(("wake", Some(reason)))),
            ObservedEvent::Awake => self.next(own, None),
            ObservedEvent::Running => {
                self.next(own, Some(("run", None)));
                own.current().into_iter().for_each(|open| open.ran = true);
            }
            ObservedEvent::Ran => {
                self.next(own, None);
                own.ran();
            }
            ObservedEvent::Ended { seq, status, .. } => own.ended(seq, status),
            ObservedEvent::Saving => own.saving = Some(SystemTime::now()),
            ObservedEvent::Saved => self.saved(own, None),
            ObservedEvent::NotSaved => self.saved(own, Some("refused")),
            ObservedEvent::RolledBack => own.unsaved.clear(),
            ObservedEvent::Queued { .. } | ObservedEvent::Removed => {}
        }
    }

    /// Moves the running instruction to its next phase.
    fn next(&self, own: &mut Own, part: Option<(&'static str, Option<&'static str>)>) {
        let Some(open) = own.current() else { return };
        open.part = None;
        let Some((name, reason)) = part else { return };
        let mut span = self.part(&open.trail, name, SystemTime::now());
        if let Some(reason) = reason {
            span.set_attribute(KeyValue::new("stasis.reason", reason));
        }
        open.part = Some(span);
    }

    fn saved(&self, own: &mut Own, failed: Option<&'static str>) {
        let since = own.saving.take().unwrap_or_else(SystemTime::now);
        for trail in own.unsaved.drain(..) {
            let mut span = self.part(&trail, "checkpoint", since);
            if let Some(failed) = failed {
                span.set_status(Status::error(failed));
            }
        }
    }
}

impl Own {
    fn current(&mut self) -> Option<&mut Open> {
        self.open.get_mut(&self.taken_up?)
    }

    /// Marks finished instructions as waiting for their checkpoint.
    fn ran(&mut self) {
        let Some(trail) = self.current().filter(|open| open.ran).map(|open| open.trail.clone())
        else {
            return;
        };
        if self.unsaved.len() >= UNSAVED {
            self.unsaved.pop_front();
        }
        self.unsaved.push_back(trail);
    }

    fn ended(&mut self, seq: u64, status: stasis_api::Status) {
        self.taken_up = self.taken_up.filter(|own| *own != seq);
        let Some(mut open) = self.open.remove(&seq) else { return };
        let word = status.word();
        open.span.set_attribute(KeyValue::new("stasis.status", word));
        if status == stasis_api::Status::Lost {
            open.span.set_status(Status::error(word));
        }
    }

    fn is_over(&self) -> bool {
        self.open.is_empty() && self.unsaved.is_empty()
    }
}
