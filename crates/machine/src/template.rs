//! Templates of a host: building them, from a recipe to an image, and finding them.
//!
//!   recipe ──► root file system ──► agent started in it ──► warm-up code ──► frozen ──► image
//!
//! A template is named by everything it was made from. Building one that is there takes no time;
//! a build that was cut off leaves a root that the next one finds.

use crate::agent::{self, AGENT_DIR};
use crate::error::{Doing, Error, Result};
use crate::held::Held;
use crate::host::Host;
use crate::line::{Line, NUMBERS};
use crate::live::Live;
use stasis_api::{EventKind, Template, Timestamp};
use stasis_engine::{LaunchSpec, Outside};
use stasis_protocol::{Done, Exec, Order, Report};
use stasis_store::{HeldImage, TemplateRecord};
use stasis_template::{Progress, Recipe, Root};
use std::time::Duration;

/// The name machines get their template by when none is given.
pub const DEFAULT: &str = "python";
/// The longest a start or a recipe's warm-up code may take.
const PATIENCE: Duration = Duration::from_secs(600);

impl Host {
    /// A template by name or digest; the default one for `None`.
    pub fn template(&self, name: Option<&str>) -> Result<TemplateRecord> {
        let name = name.unwrap_or(DEFAULT);
        let found = self.inner().store.template(name)?;
        // one whose image an earlier program wrote in another form has to be built again
        let form = stasis_engine::SectionKind::form();
        let found = found.filter(|record| record.details["form"] == form.as_str());
        found.ok_or_else(|| Error::NoTemplate(name.to_owned()))
    }

    pub fn templates(&self) -> Result<Vec<Template>> {
        let all = self.inner().store.templates()?;
        Ok(all.into_iter().map(|record| record.template).collect())
    }

    /// Builds a template, or finds that it is there.
    pub fn build_template(&self, recipe: &Recipe, progress: &dyn Progress) -> Result<Template> {
        let inner = self.inner();
        let (roots, cache) = (&inner.dirs.roots, &inner.dirs.cache);
        let root = stasis_template::build_root(recipe, roots, cache, progress)?;
        let agent = agent::place(roots, &agent::own());
        let agent = agent.doing(|| format!("place the agent in {}", roots.display()))?;
        let form = stasis_engine::SectionKind::form();
        let parts = [root.digest.as_str(), &recipe.digest(), &agent, &form].join("\n");
        let digest = blake3::hash(parts.as_bytes()).to_hex().to_string();
        if let Some(known) = inner.store.template(&digest)? {
            return Ok(known.template);
        }
        progress.step("warm up", 0, None);
        let own_root = format!("{agent}+{}", root.name);
        let image = self.prepare(&root, &own_root, &recipe.warm_up)?;
        let template = Template {
            name: recipe.name.clone(),
            digest,
            created_at: Timestamp::now(),
            language: "python".into(),
            version: root.python_version.clone(),
            recipe: recipe.print(),
            image: image.name(),
            root: own_root,
        };
        let details = serde_json::json!({
            "packages": root.lock, "bytes": root.bytes, "form": form
        });
        let record = TemplateRecord { template: template.clone(), details };
        inner.store.add_template(&record, &image)?;
        drop(image);
        self.retire_older(&template)?;
        inner.tell_all(EventKind::TemplateBuilt, template.name.clone());
        progress.step("warm up", 1, Some(1));
        Ok(template)
    }

    /// Forgets templates whose name a new one took and on which no machine stands.
    fn retire_older(&self, new: &Template) -> Result<()> {
        for old in self.templates()? {
            let unused = self.inner().store.template_users(&old.digest)? == 0;
            if old.name == new.name && old.digest != new.digest && unused {
                self.remove_template(&old.digest)?;
            }
        }
        Ok(())
    }

    /// Starts the agent in a root, warms it up, and takes its image.
    fn prepare(&self, root: &Root, own_root: &str, code: &str) -> Result<Held> {
        let python = root.python.to_string_lossy().into_owned();
        let program = LaunchSpec {
            argv: stasis_agent::argv(&python, AGENT_DIR),
            path: python,
            env: root.env.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            cwd: root.home.to_string_lossy().into_owned(),
            ..LaunchSpec::default()
        };
        let (line, fds) = Line::open()?;
        let outside = Outside { fds, numbers: NUMBERS.to_vec() };
        let engine = &self.inner().engine;
        let tree = engine.launch(own_root, program, outside)?;
        let mut live = Live { tree, line, _egress: None, awake: false };
        let ready = |report| matches!(report, Report::Ready { .. }).then_some(());
        live.expect_within(PATIENCE, ready)?;
        warm_up(&mut live, code)?;
        live.ask(&Order::Freeze, |report| matches!(report, Report::Frozen).then_some(()))?;
        let image = live.capture(self.inner(), "")?.image;
        live.tree.kill()?;
        Ok(Held(image))
    }

    /// Forgets a template and its root. Refused while machines stand on it.
    pub fn remove_template(&self, name: &str) -> Result<()> {
        let inner = self.inner();
        let missing = || Error::NoTemplate(name.to_owned());
        let template = inner.store.template(name)?.ok_or_else(missing)?.template;
        let users = inner.store.remove_template(&template.digest)?;
        if users > 0 {
            return Err(Error::TemplateInUse(template.name, users));
        }
        inner.standby.forget(&template.image);
        inner.cool_down(&template.image);
        inner.tell_all(EventKind::TemplateRemoved, template.name.clone());
        let own = agent::layers(&template.root).1;
        if self.templates()?.iter().all(|other| agent::layers(&other.root).1 != own) {
            stasis_template::remove(&inner.dirs.roots, own)?;
        }
        Ok(())
    }
}

/// Runs the recipe's code in a namespace of its own: what it defines is not the users'.
fn warm_up(live: &mut Live, code: &str) -> Result<()> {
    // a JSON string is a Python one, too
    let text = serde_json::Value::from(code);
    let code = format!("exec(compile({text}, '<warm-up>', 'exec'), {{'__name__': 'warm_up'}})");
    let order = Order::Exec(Exec { seq: 0, code, max_bytes: 1 << 20, max_whole: 0 });
    live.line.send(&order)?;
    let done: Done = live.expect_within(PATIENCE, |report| match report {
        Report::Done(done) => Some(done),
        _ => None,
    })?;
    match done.error {
        None => Ok(()),
        Some(error) => Err(Error::Invalid(format!("warm-up code failed: {}", error.traceback))),
    }
}
