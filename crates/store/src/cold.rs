//! Packs that have been out of use for long: found, and compressed a few at a time.

use super::names::StoreListing;
use super::{RewrittenPack, Store};
use crate::error::Result;
use stasis_image::{ImageId, PackForm};
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

impl Store {
    /// Compresses up to `most` packs that no image of `hot` needs and that were written longer ago
    /// than `age`; the space that freed.
    pub fn compress_cold(&self, hot: &HashSet<ImageId>, age: Duration, most: usize) -> Result<u64> {
        let hot = self.packs_of(hot)?;
        let now = SystemTime::now();
        let is_old = |path: &std::path::Path| {
            let written = path.metadata().and_then(|about| about.modified());
            written.is_ok_and(|at| now.duration_since(at).is_ok_and(|passed| passed >= age))
        };
        let packs = StoreListing::list(self)?.packs.into_iter();
        let cold = packs
            .filter(|(root, form)| *form == PackForm::Plain && !hot.contains(root))
            .filter(|(root, form)| is_old(&self.pack_path(*root, *form)));
        let mut freed = 0;
        for (root, _) in cold.take(most) {
            let RewrittenPack { before, after } = self.compress(root)?;
            freed += before.saturating_sub(after);
        }
        Ok(freed)
    }
}
