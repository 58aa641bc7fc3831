//! Templates of a host: building them, from a recipe to an image, and finding them.
//!
//!   recipe ──► root file system ──► agent started in it ──► warm-up code ──► frozen ──► image
//!
//! A template is named by everything it was made from. Building one that is there takes no time;
//! a build that was cut off leaves a root that the next one finds.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::line::{Line, NUMBERS};
use crate::live::Live;
use stasis_api::{Template, Timestamp};
use stasis_engine::{LaunchSpec, Outside};
use stasis_protocol::{Done, Exec, Order, Report};
use stasis_store::TemplateRecord;
use stasis_template::{Progress, Recipe, Root};

/// The name machines get their template by when none is given.
pub const DEFAULT: &str = "python";
/// Where the agent lies in a root.
const AGENT_DIR: &str = "/opt/stasis/agent";

impl Host {
    /// A template by name or digest; the default one for `None`.
    pub fn template(&self, name: Option<&str>) -> Result<TemplateRecord> {
        let name = name.unwrap_or(DEFAULT);
        let found = self.inner().store.template(name)?;
        found.ok_or_else(|| Error::NoTemplate(name.to_owned()))
    }

    pub fn templates(&self) -> Result<Vec<Template>> {
        let all = self.inner().store.templates()?;
        Ok(all.into_iter().map(|record| record.template).collect())
    }

    /// Builds a template, or finds that it is there.
    pub fn build_template(&self, recipe: &Recipe, progress: &dyn Progress) -> Result<Template> {
        let inner = self.inner();
        let files: Vec<(String, &str)> = stasis_agent::FILES
            .iter()
            .map(|(path, text)| (format!("{AGENT_DIR}/{path}"), *text))
            .collect();
        let root =
            stasis_template::build_root(recipe, &files, &inner.dirs.roots, &inner.dirs.cache, progress)?;
        if let Some(known) = inner.store.template(&root.digest)?
            && known.template.name == recipe.name
        {
            return Ok(known.template);
        }
        progress.step("warm up", 0, None);
        let image = self.prepare(&root)?;
        let template = Template {
            name: recipe.name.clone(),
            digest: root.digest.clone(),
            created_at: Timestamp::now(),
            language: "python".into(),
            version: root.python_version.clone(),
            recipe: recipe.print(),
            image,
            root: root.name.clone(),
        };
        let details = serde_json::json!({ "packages": root.lock, "bytes": root.bytes });
        inner.store.add_template(&TemplateRecord { template: template.clone(), details })?;
        progress.step("warm up", 1, Some(1));
        Ok(template)
    }

    /// Starts the agent in a root, warms it up, and takes its image.
    fn prepare(&self, root: &Root) -> Result<String> {
        let python = root.python.to_string_lossy().into_owned();
        let program = LaunchSpec {
            argv: stasis_agent::argv(&python, AGENT_DIR),
            path: python,
            env: root.env.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            cwd: root.home.to_string_lossy().into_owned(),
        };
        let (line, fds) = Line::open()?;
        let outside = Outside { fds, numbers: NUMBERS.to_vec() };
        let engine = &self.inner().engine;
        let tree = engine.launch(&root.name, program, outside)?;
        let mut live = Live { tree, line };
        live.expect(|report| matches!(report, Report::Ready { .. }).then_some(()))?;
        warm_up(&mut live, &root.recipe.warm_up)?;
        live.ask(&Order::Freeze, |report| matches!(report, Report::Frozen).then_some(()))?;
        let image = engine.capture(&live.tree)?.image;
        live.tree.kill()?;
        Ok(image.id.to_string())
    }

    /// Forgets a template and its root. Refused while machines stand on it.
    pub fn remove_template(&self, name: &str) -> Result<()> {
        let inner = self.inner();
        let template = self.template(Some(name))?.template;
        let users = inner.store.template_users(&template.digest)?;
        if users > 0 {
            return Err(Error::TemplateInUse(template.name, users));
        }
        inner.store.remove_template(&template.digest)?;
        Ok(stasis_template::remove(&inner.dirs.roots, &template.root)?)
    }
}

fn warm_up(live: &mut Live, code: &str) -> Result<()> {
    let order = Order::Exec(Exec { seq: 0, code: code.to_owned(), max_bytes: 1 << 20 });
    let done: Done = live.ask(&order, |report| match report {
        Report::Done(done) => Some(done),
        _ => None,
    })?;
    match done.error {
        None => Ok(()),
        Some(error) => Err(Error::Invalid(format!("warm-up code failed: {}", error.traceback))),
    }
}
