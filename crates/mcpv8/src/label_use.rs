//! How requests about labels look to policies of `fs_snapshot`. Lists, logs and the resolution of a
//! label are not gated.

use crate::error::Result;
use crate::fs_tools::{LogOf, OfLabel};
use crate::tools::Nothing;
use crate::{FsLabel, FsMerge, FsPush, FsReset, V8};

/// An operation with the label and the tree that it names.
type Used<'a> = (&'static str, Option<&'a str>, Option<&'a str>);

pub(crate) trait LabelUse {
    /// None, if it is not gated.
    fn used(&self) -> Option<Used<'_>>;
}

impl LabelUse for Nothing {
    fn used(&self) -> Option<Used<'_>> {
        None
    }
}

impl LabelUse for LogOf {
    fn used(&self) -> Option<Used<'_>> {
        None
    }
}

impl LabelUse for OfLabel {
    fn used(&self) -> Option<Used<'_>> {
        Some(("pull", Some(&self.label), None))
    }
}

impl LabelUse for FsLabel {
    fn used(&self) -> Option<Used<'_>> {
        Some(("label", Some(&self.name), Some(&self.ca_id)))
    }
}

impl LabelUse for FsPush {
    fn used(&self) -> Option<Used<'_>> {
        Some(("push", self.label.as_deref(), Some(&self.ca_id)))
    }
}

impl LabelUse for FsReset {
    fn used(&self) -> Option<Used<'_>> {
        Some(("reset", Some(&self.label), Some(&self.ca_id)))
    }
}

impl LabelUse for FsMerge {
    fn used(&self) -> Option<Used<'_>> {
        Some(("merge", None, Some(&self.ours)))
    }
}

impl V8 {
    /// Whether the policies of a setup allow a push.
    pub fn permit_push(&self, account: &str, setup: Option<&str>, push: &FsPush) -> Result<()> {
        self.permit(account, setup, push)
    }

    /// Whether the policies of a setup allow a request about labels.
    pub(crate) fn permit(
        &self,
        account: &str,
        setup: Option<&str>,
        asked: &impl LabelUse,
    ) -> Result<()> {
        asked.used().map_or(Ok(()), |used| self.permit_labels(account, setup, used))
    }
}
