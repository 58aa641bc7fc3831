//! Counts the use of budgets: instructions, processor time, calls of tools, branches.
//!
//!   about to use ─► bounds of its policies ─► counted for its line and its account ─► done
//!                          └─► refused, an event       └─► given back, if it does not happen
//!
//! Nothing is counted for machines whose policies have no budget. A line is a machine and all its
//! branches. The counts are recorded five times a second, so a crash of the service forgets at
//! most those of the last fifth.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::host::HostInner;
use crate::machine::Machine;
use crate::tools::RequestedCall;
use crate::traffic_totals;
use parking_lot::Mutex;
use stasis_api::{PolicyVerdict, RefusedAccess};
use stasis_policy::budget::{self, BudgetKind, BudgetRefusal};
use stasis_policy::decide::{DecidedBy, Decision, Denial};
use stasis_policy::document::Policy;
use stasis_records::{DocumentChange, Records};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The kind of their documents in the records, and the key of an account's.
const KIND: &str = "budget";
const ACCOUNT: &str = "account";
/// Interval at which the processor time of a running instruction is read.
pub(crate) const OFTEN: Duration = Duration::from_millis(250);

type Amounts = [u64; BudgetKind::ALL.len()];

/// The amounts that a line of machines, or an account, has used.
#[derive(Debug, Default)]
struct BudgetMeter {
    used: Mutex<Amounts>,
    changed: AtomicBool,
    /// The refusals that were reported, so that each is reported once.
    told: Mutex<HashSet<String>>,
}

/// The meter of an account has no line.
type MeterKey = (String, Option<i64>);

/// The meters of a host.
#[derive(Debug, Default)]
pub(crate) struct BudgetMeters(Mutex<HashMap<MeterKey, Arc<BudgetMeter>>>);

/// An amount that was counted; it is given back unless it is kept.
#[derive(Debug)]
pub(crate) struct BudgetCharge(Option<(BudgetKind, u64, [Arc<BudgetMeter>; 2])>);

impl BudgetCharge {
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for BudgetCharge {
    fn drop(&mut self) {
        let Some((kind, amount, meters)) = &self.0 else { return };
        for meter in meters {
            let mut used = meter.used.lock();
            used[*kind as usize] = used[*kind as usize].saturating_sub(*amount);
        }
    }
}

impl BudgetMeter {
    fn add(&self, kind: BudgetKind, amount: u64) {
        let mut used = self.used.lock();
        used[kind as usize] = used[kind as usize].saturating_add(amount);
        self.changed.store(true, Ordering::Release);
    }
}

impl BudgetMeters {
    /// Reads what was recorded; lines without a machine are forgotten.
    pub fn load(records: &Records) -> Result<BudgetMeters> {
        let machines = records.machines()?;
        let lines: HashSet<_> = machines
            .iter()
            .map(|record| (record.made.account.clone(), record.lineage.0.to_string()))
            .collect();
        let mut meters = HashMap::new();
        for (account, key) in records.documents_of_kind(KIND)? {
            if key != ACCOUNT && !lines.contains(&(account.clone(), key.clone())) {
                let gone = DocumentChange::Remove { kind: KIND, key };
                records.change_documents(&account, vec![gone])?;
                continue;
            }
            let text = records.document(&account, KIND, &key)?.unwrap_or_default();
            let used = serde_json::from_str::<Amounts>(&text).unwrap_or_default();
            let meter = BudgetMeter { used: Mutex::new(used), ..BudgetMeter::default() };
            meters.insert((account, key.parse().ok()), Arc::new(meter));
        }
        Ok(BudgetMeters(Mutex::new(meters)))
    }

    fn of(&self, account: &str, line: i64) -> [Arc<BudgetMeter>; 2] {
        let mut all = self.0.lock();
        let mut one = |line| all.entry((account.to_owned(), line)).or_default().clone();
        [one(Some(line)), one(None)]
    }

    /// Records what has changed.
    pub fn write(&self, records: &Records) {
        let changed: Vec<_> = {
            let all = self.0.lock();
            let changed =
                all.iter().filter(|(_, meter)| meter.changed.swap(false, Ordering::AcqRel));
            changed.map(|(key, meter)| (key.clone(), meter.clone())).collect()
        };
        for ((account, line), meter) in changed {
            let key = line.map_or_else(|| ACCOUNT.to_owned(), |line| line.to_string());
            let value = serde_json::to_string(&*meter.used.lock()).unwrap_or_default();
            let change = DocumentChange::Put { kind: KIND, key, value };
            if let Err(error) = records.change_documents(&account, vec![change]) {
                meter.changed.store(true, Ordering::Release);
                tracing::error!(account, %error, "a budget was not recorded");
            }
        }
    }
}

impl HostInner {
    /// Records what machines have used up since the last time.
    pub(crate) fn write_budgets(&self) {
        self.budgets.write(&self.records);
        traffic_totals::write(&self.records, &self.policies);
    }

    /// The policies of a machine that have a budget; none, if there is nothing to count.
    fn budgeted(&self, machine: &Machine) -> Option<Vec<Arc<Policy>>> {
        if !self.policies.has_budgets() {
            return None;
        }
        let levels = machine.policy_levels();
        budget::is_any(&levels).then_some(levels)
    }

    fn meters(&self, machine: &Machine) -> [Arc<BudgetMeter>; 2] {
        let record = machine.record();
        self.budgets.of(&record.made.account, record.lineage.0)
    }

    /// Counts an amount, if the budgets of a machine allow it.
    fn charged(
        &self,
        machine: &Machine,
        kind: BudgetKind,
        amount: u64,
    ) -> std::result::Result<BudgetCharge, BudgetRefusal> {
        let Some(levels) = self.budgeted(machine) else { return Ok(BudgetCharge(None)) };
        let meters = self.meters(machine);
        let [line, account] = &meters;
        // in this order everywhere
        let (mut line_used, mut account_used) = (line.used.lock(), account.used.lock());
        let index = kind as usize;
        budget::admit(&levels, kind, amount, [line_used[index], account_used[index]])?;
        for used in [&mut line_used, &mut account_used] {
            used[index] = used[index].saturating_add(amount);
        }
        drop((line_used, account_used));
        meters.iter().for_each(|meter| meter.changed.store(true, Ordering::Release));
        Ok(BudgetCharge(Some((kind, amount, meters))))
    }

    /// Counts an amount that a client asks for, or refuses it.
    pub(crate) fn charge(
        &self,
        machine: &Machine,
        kind: BudgetKind,
        amount: u64,
    ) -> Result<BudgetCharge> {
        let charged = self.charged(machine, kind, amount);
        charged.map_err(|refusal| {
            self.tell_used_up(machine, kind, &refusal);
            let BudgetRefusal { policy, rule, .. } = &refusal;
            Error::BudgetUsed {
                machine: machine.name().to_string(),
                reason: refusal.to_string(),
                policy: policy.to_string(),
                rule: rule.clone(),
            }
        })
    }

    fn tell_used_up(&self, machine: &Machine, kind: BudgetKind, refusal: &BudgetRefusal) {
        let [line, _] = self.meters(machine);
        let same = format!("{} {}", refusal.policy, refusal);
        if line.told.lock().insert(same) {
            machine.tell_refused(RefusedAccess {
                access: format!("use {}", kind.key()),
                verdict: PolicyVerdict::Deny,
                reason: refusal.to_string(),
                policy: Some(refusal.policy.to_string()),
                rule: Some(refusal.rule.clone()),
                unreported: 0,
            });
        }
    }
}

impl Machine {
    /// Whether its code may call a tool now: the decision of its policies, and its budget. A call
    /// that may be made is counted.
    pub(crate) fn admit_tool(&self, call: &RequestedCall) -> Decision {
        let decision = self.decide_tool(call);
        if matches!(decision, Decision::Deny(..)) {
            return decision;
        }
        match self.host.charged(self, BudgetKind::ToolCalls, 1) {
            Ok(charge) => {
                charge.keep();
                decision
            }
            Err(refusal) => {
                let policy = refusal.policy.to_string();
                let by = DecidedBy { policy, rule: Some(refusal.rule.clone()) };
                Decision::Deny(Denial::Budget(refusal.to_string()), Some(by))
            }
        }
    }
}

/// Looks at the processor time of a running instruction.
#[derive(Default)]
pub(crate) struct ProcessorWatch {
    levels: Vec<Arc<Policy>>,
    looked: Option<Instant>,
    is_over: bool,
}

impl ProcessorWatch {
    /// When to wake up to look again, if that is sooner.
    pub fn sooner(&self, wake: Option<Instant>) -> Option<Instant> {
        let next = self.looked.filter(|_| !self.is_over).map(|at| at + OFTEN);
        wake.into_iter().chain(next).min()
    }
}

impl Driver {
    /// Begins to watch an instruction whose policies have a budget.
    pub(crate) fn watch_processor(&mut self) -> ProcessorWatch {
        let levels = self.host.budgeted(&self.machine);
        let looked = levels.as_ref().map(|_| Instant::now());
        self.count_processor();
        ProcessorWatch { levels: levels.unwrap_or_default(), looked, is_over: false }
    }

    /// Counts the processor time since the last look. Whether the budget is used up.
    pub(crate) fn is_over_budget(&mut self, watch: &mut ProcessorWatch) -> bool {
        let Some(looked) = watch.looked.filter(|_| !watch.is_over) else { return watch.is_over };
        if looked.elapsed() < OFTEN {
            return false;
        }
        watch.looked = Some(Instant::now());
        self.count_processor();
        let used =
            self.host.meters(&self.machine).map(|one| one.used.lock()[BudgetKind::Cpu as usize]);
        if let Err(refusal) = budget::admit(&watch.levels, BudgetKind::Cpu, 0, used) {
            self.host.tell_used_up(&self.machine, BudgetKind::Cpu, &refusal);
            self.notes.push(format!("{refusal} (policy {}, {})", refusal.policy, refusal.rule));
            watch.is_over = true;
        }
        watch.is_over
    }

    /// Counts the processor time since the last look.
    pub(crate) fn count_processor(&mut self) {
        if self.host.budgeted(&self.machine).is_none() {
            return;
        }
        let Some(live) = &mut self.live else { return };
        let Some(now) = live.tree.usage().cpu_ns else { return };
        // what its restore cost is not its own
        let before = *live.cpu_seen.get_or_insert(now);
        let spent = now.saturating_sub(before) / 1_000_000;
        live.cpu_seen = Some(before + spent * 1_000_000);
        if spent > 0 {
            self.host.meters(&self.machine).iter().for_each(|one| one.add(BudgetKind::Cpu, spent));
        }
    }
}
