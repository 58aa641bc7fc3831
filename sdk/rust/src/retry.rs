//! When a request is retried, and after which pause. Pure decisions.

use crate::Error;
use std::time::Duration;

/// The number and pace of retries. Pauses double from `first` up to `longest`, with jitter so that
/// many clients do not return at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Maximum attempts of a request.
    pub attempts: u32,
    /// Maximum resumptions of a stream without a new line in between.
    pub resumes: u32,
    pub first: Duration,
    pub longest: Duration,
}

/// Maximum wait that a service can request.
const PATIENCE: Duration = Duration::from_secs(60);

impl Default for Retry {
    fn default() -> Retry {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(5));
        Retry { attempts: 4, resumes: 12, first, longest }
    }
}

impl Retry {
    /// The wait before the next attempt, after `made` attempts; at least the service's
    /// `retry-after`.
    pub(crate) fn pause(&self, made: u32, failure: &Error) -> Duration {
        let grown = self.first.saturating_mul(1 << made.min(20)).min(self.longest);
        let asked = match failure {
            Error::Api(error) => error.retry_after.unwrap_or_default().min(PATIENCE),
            _ => Duration::ZERO,
        };
        grown.mul_f64(0.5 + f64::from(random::<1>()[0]) / 512.0).max(asked)
    }
}

/// Whether a request may be retried: it had no effect, or is idempotent.
pub(crate) fn is_worth(failure: &Error, repeatable: bool) -> bool {
    let status = match failure {
        Error::Unreachable { sent, .. } => return repeatable || !sent,
        Error::Api(error) => error.status,
        Error::Protocol { status: Some(status), .. } => *status,
        _ => return false,
    };
    match status {
        // refused before anything was changed
        429 | 503 => true,
        // a proxy did not reach the service, or not in time
        502 | 504 => repeatable,
        _ => false,
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // without randomness, pauses are regular and names are refused as taken: nothing breaks
    let _ = getrandom::fill(&mut bytes);
    bytes
}

/// A unique key: 32 digits.
pub(crate) fn unique() -> String {
    random::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorBody;

    fn refused(status: u16) -> Error {
        Error::of(status, ErrorBody::default())
    }

    #[test]
    fn what_did_nothing_is_tried_again() {
        let never_sent = Error::Unreachable { message: String::new(), sent: false, source: None };
        for failure in [never_sent, refused(429), refused(503)] {
            assert!(is_worth(&failure, false), "{failure}");
        }
    }

    #[test]
    fn what_may_have_done_something_only_if_that_is_harmless() {
        for failure in [Error::broken(""), refused(502), refused(504)] {
            assert!(is_worth(&failure, true) && !is_worth(&failure, false), "{failure}");
        }
        for failure in [refused(400), refused(404), refused(409), refused(500)] {
            assert!(!is_worth(&failure, true), "{failure}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let retry = Retry::default();
        for made in 0..40 {
            let pause = retry.pause(made, &Error::broken(""));
            let full = retry.first.saturating_mul(1 << made.min(20)).min(retry.longest);
            assert!(pause >= full / 2 && pause <= full, "{made}: {pause:?}");
        }
    }
}
