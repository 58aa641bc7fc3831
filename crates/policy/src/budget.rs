//! Budgets: amounts that machines use up, for a line of machines and for an account.
//!
//!   amount ─► used so far, by the machine and its branches, and by its account
//!          ─► the lowest bound of all its policies ─► counted, or refused with the rule
//!
//! A branch draws from its parent's budget: both are of one line. Swaps, undos and restarts renew
//! nothing.

use crate::document::Policy;
use stasis_api::{BudgetLimits, Name};
use std::fmt;
use std::sync::Arc;

/// The things that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetKind {
    Instructions,
    /// In milliseconds.
    Cpu,
    ToolCalls,
    Branches,
}

impl BudgetKind {
    pub const ALL: [BudgetKind; 4] =
        [BudgetKind::Instructions, BudgetKind::Cpu, BudgetKind::ToolCalls, BudgetKind::Branches];

    pub fn key(self) -> &'static str {
        match self {
            BudgetKind::Instructions => "instructions",
            BudgetKind::Cpu => "cpu_seconds",
            BudgetKind::ToolCalls => "tool_calls",
            BudgetKind::Branches => "branches",
        }
    }

    fn words(self) -> &'static str {
        match self {
            BudgetKind::Instructions => "instructions",
            BudgetKind::Cpu => "seconds of processor time",
            BudgetKind::ToolCalls => "calls of tools",
            BudgetKind::Branches => "branches",
        }
    }

    fn bound(self, limits: &BudgetLimits) -> Option<u64> {
        match self {
            BudgetKind::Instructions => limits.instructions,
            BudgetKind::Cpu => limits.cpu_seconds.map(|seconds| seconds.saturating_mul(1000)),
            BudgetKind::ToolCalls => limits.tool_calls,
            BudgetKind::Branches => limits.branches,
        }
    }
}

/// The owner of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetScope {
    /// A machine and all its branches.
    Line,
    Account,
}

impl BudgetScope {
    pub const ALL: [BudgetScope; 2] = [BudgetScope::Line, BudgetScope::Account];

    fn section(self) -> &'static str {
        match self {
            BudgetScope::Line => "budget",
            BudgetScope::Account => "account_budget",
        }
    }
}

/// A budget that is used up, and the policy that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetRefusal {
    pub policy: Name,
    /// Such as `budget.instructions`.
    pub rule: String,
    kind: BudgetKind,
    scope: BudgetScope,
    most: u64,
}

impl fmt::Display for BudgetRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.scope {
            BudgetScope::Line => "the machine and its branches",
            BudgetScope::Account => "the account",
        };
        let most = if self.kind == BudgetKind::Cpu { self.most / 1000 } else { self.most };
        write!(out, "beyond the budget of {whose}: {most} {}", self.kind.words())
    }
}

/// Whether any of the policies has a budget.
pub fn is_any(levels: &[Arc<Policy>]) -> bool {
    levels.iter().any(|level| level.has_budget())
}

/// Whether so much more may be used up; with none, whether there is anything left. `used` is what
/// the line of machines and the account have used up.
pub fn admit(
    levels: &[Arc<Policy>],
    kind: BudgetKind,
    more: u64,
    used: [u64; 2],
) -> Result<(), BudgetRefusal> {
    for (scope, used) in BudgetScope::ALL.into_iter().zip(used) {
        let own = |level: &Arc<Policy>| {
            let limits = level.budgets()[scope as usize];
            kind.bound(&limits).map(|most| (most, level.name.clone()))
        };
        let Some((most, policy)) = levels.iter().filter_map(own).min_by_key(|(most, _)| *most)
        else {
            continue;
        };
        // at least one unit has to be left
        if used.saturating_add(more.max(1)) > most {
            let rule = format!("{}.{}", scope.section(), kind.key());
            return Err(BudgetRefusal { policy, rule, kind, scope, most });
        }
    }
    Ok(())
}

impl Policy {
    /// Whether it limits what is used up, other than traffic.
    pub fn has_budget(&self) -> bool {
        let bounds = |limits: &BudgetLimits| BudgetKind::ALL.map(|kind| kind.bound(limits));
        self.budgets().iter().any(|limits| bounds(limits).iter().any(Option::is_some))
    }

    /// Whether it limits the bytes of a machine or an account in total.
    pub fn has_traffic_total(&self) -> bool {
        let budgeted = self.budgets().iter().any(|limits| limits.traffic_mib.is_some());
        budgeted || self.traffic().total_mib.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::parse;
    use proptest::prelude::*;

    fn level(name: &str, text: &str) -> Arc<Policy> {
        let document = parse(text).expect("a document");
        Arc::new(Policy::compile(name.parse().expect("a name"), &document).expect("a policy"))
    }

    #[test]
    fn the_lowest_budget_counts_and_says_whose_it_is() {
        let wide = level("wide", "[budget]\ninstructions = 9\ncpu_seconds = 2");
        let low = level("low", "[budget]\ninstructions = 3\n[account_budget]\ninstructions = 5");
        let levels = [wide, low];
        assert!(is_any(&levels) && !is_any(&[level("none", "")]));
        let admit = |more, used| admit(&levels, BudgetKind::Instructions, more, used);
        assert_eq!(admit(3, [0, 0]), Ok(()));
        let refused = admit(1, [3, 3]).expect_err("used up");
        assert_eq!(
            (refused.policy.as_str(), refused.rule.as_str()),
            ("low", "budget.instructions")
        );
        let words = "beyond the budget of the machine and its branches: 3 instructions";
        assert_eq!(refused.to_string(), words);
        let refused = admit(1, [0, 5]).expect_err("used up");
        assert_eq!(refused.rule, "account_budget.instructions");
        let cpu = super::admit(&levels, BudgetKind::Cpu, 0, [2000, 0]).expect_err("used up");
        assert!(cpu.to_string().ends_with("2 seconds of processor time"), "{cpu}");
        assert_eq!(super::admit(&levels, BudgetKind::Cpu, 0, [1999, 0]), Ok(()));
        assert_eq!(super::admit(&levels, BudgetKind::Branches, 99, [99, 99]), Ok(()));
    }

    proptest! {
        /// What is admitted stays within every budget, what fits is admitted, and the order of
        /// policies does not matter.
        #[test]
        fn budgets_are_exact(
            bounds in prop::collection::vec((0u64..50, 0u64..50), 1..4),
            used in [0u64..50, 0u64..50], more in 0u64..20,
        ) {
            let mut levels: Vec<_> = bounds.iter().enumerate().map(|(index, (line, account))| {
                let text = format!(
                    "[budget]\ntool_calls = {line}\n[account_budget]\ntool_calls = {account}"
                );
                level(&format!("p{index}"), &text)
            }).collect();
            let fits = bounds.iter().all(|(line, account)| {
                used[0] + more.max(1) <= *line && used[1] + more.max(1) <= *account
            });
            let admitted = admit(&levels, BudgetKind::ToolCalls, more, used).is_ok();
            prop_assert_eq!(admitted, fits);
            levels.reverse();
            prop_assert_eq!(admit(&levels, BudgetKind::ToolCalls, more, used).is_ok(), fits);
        }

        /// A level more never allows more.
        #[test]
        fn a_child_is_never_wider(
            parent in 0u64..50, child in 0u64..50, used in 0u64..50, more in 0u64..20,
        ) {
            let parent = level("parent", &format!("[budget]\nbranches = {parent}"));
            let child = level("child", &format!("[budget]\nbranches = {child}"));
            let admit = |levels: &[Arc<Policy>]| {
                admit(levels, BudgetKind::Branches, more, [used, 0]).is_ok()
            };
            prop_assert!(admit(std::slice::from_ref(&parent)) || !admit(&[parent, child]));
        }
    }
}
