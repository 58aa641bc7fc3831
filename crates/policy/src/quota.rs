//! Quotas of accounts: machines, memory, instructions, disk.

use stasis_api::Limits;

/// The account that runs the service, which nothing is refused but a queue without end.
const FIRST: &str = "root";
/// Maximum running or waiting instructions of one account, regardless of its quota.
const PENDING: u64 = 10_000;
/// Maximum bytes of waiting code of one account, regardless of its quota.
const PENDING_CODE: u64 = 128 << 20;

/// Absent means no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    pub machines: Option<u64>,
    pub memory_mb: Option<u64>,
    /// That run or wait.
    pub instructions: Option<u64>,
    pub disk_mb: Option<u64>,
}

/// The exceeded resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverQuota {
    pub what: &'static str,
    pub used: u64,
    pub most: u64,
}

impl Quota {
    /// An account's quota, from the common one.
    pub fn of(self, account: &str) -> Quota {
        if account == FIRST { Quota::default() } else { self }
    }

    pub fn is_bounded(&self) -> bool {
        *self != Quota::default()
    }

    /// As limits of one machine, which cannot have more than the account.
    pub fn as_limits(&self) -> Limits {
        Limits { memory_mb: self.memory_mb, disk_mb: self.disk_mb, ..Limits::default() }
    }

    /// Whether an account with `used` machines may make so many more.
    pub fn admit_machines(&self, used: u64, more: u64) -> Result<(), OverQuota> {
        let fits = |most: u64| used.saturating_add(more) <= most;
        check("machines", used, self.machines, fits)
    }

    /// Whether an account that uses so many MB on disk may add to it.
    pub fn admit_disk(&self, used: u64) -> Result<(), OverQuota> {
        check("MB on disk", used, self.disk_mb, |most| used < most)
    }

    /// Whether one more instruction may wait beside so many, with so many bytes of code.
    pub fn admit_instruction(&self, used: u64, code: u64) -> Result<(), OverQuota> {
        let most = self.instructions.unwrap_or(PENDING).min(PENDING);
        check("instructions", used, Some(most), |most| used < most)?;
        let (most, mb) = (Some(PENDING_CODE >> 20), code >> 20);
        check("MB of code that waits", mb, most, |_| code < PENDING_CODE)
    }

    /// Whether a machine of `own` MB fits beside others that use so many.
    pub fn admit_memory(&self, used: u64, own: u64) -> Result<(), OverQuota> {
        let fits = |most: u64| used.saturating_add(own) <= most;
        check("MB of memory", used, self.memory_mb, fits)
    }
}

fn check(
    what: &'static str,
    used: u64,
    most: Option<u64>,
    fits: impl FnOnce(u64) -> bool,
) -> Result<(), OverQuota> {
    match most {
        Some(most) if !fits(most) => Err(OverQuota { what, used, most }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_account_has_no_quota() {
        let quota = Quota { machines: Some(1), ..Quota::default() };
        assert!(quota.of("root").admit_machines(99, 1).is_ok());
        assert!(!quota.of("root").is_bounded() && quota.of("other").is_bounded());
        let over = quota.of("other").admit_machines(1, 1).expect_err("one too many");
        assert_eq!(over, OverQuota { what: "machines", used: 1, most: 1 });
    }

    proptest! {
        /// Admitted requests stay within the quota, and every request that fits is admitted.
        #[test]
        fn quotas_are_exact(most in 0u64..100, used in 0u64..100, more in 0u64..100) {
            let most_of = Some(most);
            let quota = Quota { machines: most_of, memory_mb: most_of, ..Quota::default() };
            prop_assert_eq!(quota.admit_machines(used, more).is_ok(), used + more <= most);
            prop_assert_eq!(quota.admit_memory(used, more).is_ok(), used + more <= most);
            let quota = Quota { disk_mb: most_of, instructions: most_of, ..Quota::default() };
            prop_assert_eq!(quota.admit_disk(used).is_ok(), used < most);
            prop_assert_eq!(quota.admit_instruction(used, 0).is_ok(), used < most);
        }

        #[test]
        fn a_queue_always_has_an_end(used: u64, code: u64) {
            let admitted = Quota::default().admit_instruction(used, code).is_ok();
            prop_assert_eq!(admitted, used < PENDING && code < PENDING_CODE);
        }
    }
}
