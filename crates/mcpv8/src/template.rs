//! The template of machines that run code.
//!
//!   first new machines ─► the language's template; the program is sent with the code
//!     └─► `BUILT_AFTER` of them ─► a template with the program, built in the background
//!                                    └─► later ones only get a call
//!
//! Both have the same root. The one with the program follows the language's: if that is built
//! anew, so is this.

use crate::error::Result;
use crate::run::{REHEARSAL, Run};
use crate::{TEMPLATE, V8};
use parking_lot::Mutex;
use stasis_api::TemplateInfo;
use stasis_machine::{MoreWarmUp, hand_over};
use std::sync::{Arc, LazyLock};

/// New machines of a process before it builds the template.
const BUILT_AFTER: u32 = 3;

static PROGRAM: LazyLock<MoreWarmUp> = LazyLock::new(|| MoreWarmUp {
    name: "javascript-mcp-v8".to_owned(),
    description: "The template of the language, with the program of mcp-v8's runs".to_owned(),
    code: REHEARSAL.clone(),
});

/// The state of the template with the program, as far as this process knows it.
#[derive(Default)]
pub(crate) struct ProgramTemplate(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The digest of the language's template that the rest is about.
    base: String,
    /// New machines that had none.
    missed: u32,
    is_begun: bool,
    digest: Option<String>,
}

/// The template of a new machine.
pub(crate) struct FoundTemplate {
    pub digest: String,
    pub has_program: bool,
}

impl V8 {
    /// Code at the prompt of a REPL has Node's own globals, and so the language's template.
    pub(crate) fn template_for_run(&self, run: &Run) -> Result<FoundTemplate> {
        let base = self.host.template(Some(TEMPLATE))?.template;
        let mut found = None;
        if run.uses_program() {
            found = match self.known_template(&base.digest) {
                Some(known) => known,
                None => self.find_template(&base)?,
            };
        }
        // it may have been removed meanwhile
        found = found.filter(|digest| self.host.template(Some(digest)).is_ok());
        let has_program = found.is_some();
        Ok(FoundTemplate { digest: found.unwrap_or(base.digest), has_program })
    }

    /// The template with the program for this template of the language, if known. Starts its build
    /// once enough runs need it.
    fn known_template(&self, base: &str) -> Option<Option<String>> {
        let mut known = self.shared.template.0.lock();
        if known.base != base {
            return None;
        }
        known.missed += u32::from(known.digest.is_none());
        if known.missed >= BUILT_AFTER && !known.is_begun {
            known.is_begun = true;
            self.build_template();
        }
        Some(known.digest.clone())
    }

    fn find_template(&self, base: &TemplateInfo) -> Result<Option<String>> {
        let found = self.host.extended_template(base, &PROGRAM)?;
        let digest = found.map(|found| found.digest);
        let known = Known { base: base.digest.clone(), missed: 1, is_begun: false, digest };
        let digest = known.digest.clone();
        *self.shared.template.0.lock() = known;
        Ok(digest)
    }

    fn build_template(&self) {
        let (host, shared) = (Arc::downgrade(&self.host), Arc::downgrade(&self.shared));
        hand_over(move || {
            let Some(host) = host.upgrade() else { return };
            let built = host.template(Some(TEMPLATE)).and_then(|base| {
                let built = host.extend_template(&base.template, &PROGRAM)?;
                Ok((base.template.digest, built.digest))
            });
            match (built, shared.upgrade()) {
                (Ok((base, digest)), Some(shared)) => {
                    let mut known = shared.template.0.lock();
                    if known.base == base {
                        known.digest = Some(digest);
                    }
                }
                (Err(error), _) => {
                    tracing::warn!(%error, "runs do without a template of their own");
                }
                _ => {}
            }
        });
    }
}
