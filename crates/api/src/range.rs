//! The range of every number a client sends. One table is checked on every request and written
//! into the OpenAPI document, so that the two cannot differ.
//!
//! Checked where requests are read, not where values are deserialized: a record that an older
//! program accepted stays readable.

// as the document calls it
use crate::MachineFilter as Filter;
use crate::*;
use std::fmt;

/// The least and the greatest value, both allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    pub least: f64,
    pub most: f64,
}

const fn span(least: f64, most: f64) -> ValueRange {
    ValueRange { least, most }
}

/// 64 MiB is what an interpreter needs; 16 TiB is more than any host has.
pub const MEMORY_MB: ValueRange = span(64.0, 16_777_216.0);
pub const CPUS: ValueRange = span(0.01, 1024.0);
/// The kernel numbers at most 4,194,304 processes.
pub const PIDS: ValueRange = span(4.0, 4_194_304.0);
/// Up to 256 TiB.
pub const DISK_MB: ValueRange = span(1.0, 268_435_456.0);
/// Up to a year.
pub const TIMEOUT: ValueRange = span(0.0, 31_536_000.0);
/// Instructions of a machine are numbered with 32 bits.
pub const SEQ: ValueRange = span(0.0, 4_294_967_295.0);
/// Branches made by one call.
pub const COUNT: ValueRange = span(1.0, 1000.0);
/// Instructions to undo or redo at once.
pub const STEPS: ValueRange = span(1.0, 1_000_000.0);
/// Positions in code, up to the longest code that is accepted.
pub const CURSOR: ValueRange = span(0.0, 16_777_216.0);
/// Page sizes; each route has its own maximum.
pub const LIMIT: ValueRange = span(0.0, 1_000_000.0);
/// Integers that every JSON reader represents exactly.
pub const WHOLE: ValueRange = span(0.0, 9_007_199_254_740_991.0);
/// Connections of one machine; the relay has no more.
pub const CONNECTIONS: ValueRange = span(0.0, 256.0);
/// Up to a TiB per second.
pub const KIB_PER_S: ValueRange = span(1.0, 1_073_741_824.0);
/// Up to a PiB.
pub const TOTAL_MIB: ValueRange = span(0.0, 1_073_741_824.0);
/// Up to a hundred years.
pub const AGE: ValueRange = span(0.0, 3_153_600_000.0);

/// A number outside its range.
#[derive(Debug, Clone, PartialEq)]
pub struct OutOfRange {
    pub field: &'static str,
    pub value: String,
    pub span: ValueRange,
}

impl OutOfRange {
    /// The code of the error, for programs.
    pub const CODE: &'static str = "request.range";
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfRange { field, value, span } = self;
        write!(f, "{field} is {value}: it must be between {} and {}", span.least, span.most)
    }
}

impl std::error::Error for OutOfRange {}

/// A request whose numbers can be checked.
pub trait Ranged {
    fn check(&self) -> Result<(), OutOfRange>;
}

impl<T: Ranged> Ranged for Option<T> {
    fn check(&self) -> Result<(), OutOfRange> {
        self.as_ref().map_or(Ok(()), Ranged::check)
    }
}

impl<T: Ranged> Ranged for Vec<T> {
    fn check(&self) -> Result<(), OutOfRange> {
        self.iter().try_for_each(Ranged::check)
    }
}

/// A number, or none, which is always valid.
pub trait Number {
    fn number(&self) -> Option<f64>;
}

impl Number for f64 {
    fn number(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Number for u32 {
    fn number(&self) -> Option<f64> {
        Some((*self).into())
    }
}

impl Number for u64 {
    fn number(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl<T: Number> Number for Option<T> {
    fn number(&self) -> Option<f64> {
        self.as_ref()?.number()
    }
}

/// Whether a number is in its range.
pub fn within(
    field: &'static str,
    value: &impl Number,
    span: ValueRange,
) -> Result<(), OutOfRange> {
    match value.number() {
        Some(number) if !(span.least..=span.most).contains(&number) => {
            Err(OutOfRange { field, value: number.to_string(), span })
        }
        _ => Ok(()),
    }
}

macro_rules! ranged {
    ($($type:ident { $($field:ident: $span:ident),* } $([$($inner:ident),*])?;)*) => {
        $(impl Ranged for $type {
            fn check(&self) -> Result<(), OutOfRange> {
                $(within(stringify!($field), &self.$field, $span)?;)*
                $($(self.$inner.check()?;)*)?
                Ok(())
            }
        })*

        /// Every number of every request: its type, its field, its range.
        pub const RANGES: &[(&str, &str, ValueRange)] = &[
            $($((stringify!($type), stringify!($field), $span),)*)*
        ];
    };
}

// the part in brackets has its own numbers
ranged! {
    Limits { memory_mb: MEMORY_MB, cpus: CPUS, pids: PIDS, disk_mb: DISK_MB };
    Retention { last: SEQ, seconds: AGE };
    NewMachine { memory_mb: MEMORY_MB } [limits, retention];
    Update {} [limits, retention];
    Filter { memory_mb_min: WHOLE, memory_mb_max: WHOLE, limit: LIMIT };
    Code { timeout_seconds: TIMEOUT };
    ExecRequest {} [instruction];
    InputLine {};
    InstructionRange { from: SEQ, limit: LIMIT };
    Complete { cursor: CURSOR };
    Rollback { seq: SEQ };
    StepRequest { n: STEPS };
    BranchRequest { seq: SEQ, count: COUNT, timeout_seconds: TIMEOUT } [vary];
    Vary {} [limits];
    ExploreRequest { seq: SEQ, timeout_seconds: TIMEOUT } [candidates];
    LabelRequest { seq: SEQ };
    EventFilter { after: WHOLE };
    ListFiles { limit: LIMIT };
    HistoryQuery {};
    PromoteRequest {};
    CompareRequest {};
    AdoptRequest {};
    FileQuery {};
    AtPath {};
    WatchFile {};
    PutFile {};
    RemoveFile {};
    BuildTemplate {};
    NewToken {};
    PolicyDocument {} [traffic, budget, account_budget];
    BudgetLimits {
        instructions: WHOLE, cpu_seconds: AGE, tool_calls: WHOLE, branches: WHOLE,
        traffic_mib: TOTAL_MIB
    };
    TrafficLimits { connections: CONNECTIONS, kib_per_s: KIB_PER_S, total_mib: TOTAL_MIB };
    SetSecret {} [oauth];
    OauthClient { refresh_buffer_secs: WHOLE };
    ExplainQuery {};
    ApprovalAnswer {};
    ApprovalQuery {};
    CheckStore {};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_edges() {
        let limits = |memory_mb| Limits { memory_mb: Some(memory_mb), ..Limits::default() };
        for fine in [64, 16_777_216] {
            assert_eq!(limits(fine).check(), Ok(()));
        }
        for wrong in [0, 63, 16_777_217, 1 << 44, u64::MAX] {
            let fault = limits(wrong).check().expect_err("out of range");
            assert_eq!(fault.field, "memory_mb");
        }
        assert!(Limits { cpus: Some(f64::NAN), ..Limits::default() }.check().is_err());
        assert!(Limits { pids: Some(1 << 40), ..Limits::default() }.check().is_err());
    }

    #[test]
    fn numbers_inside_others_are_checked() {
        let limits = Limits { pids: Some(1), ..Limits::default() };
        assert!(NewMachine { limits, ..NewMachine::default() }.check().is_err());
        assert!(Update { limits: Some(limits), ..Update::default() }.check().is_err());
        let vary = vec![Vary { limits, ..Vary::default() }];
        assert!(BranchRequest { vary, ..BranchRequest::default() }.check().is_err());
        let retention = Some(Some(Retention { seconds: Some(u64::MAX), ..Retention::default() }));
        assert!(Update { retention, ..Update::default() }.check().is_err());
    }
}
