//! Templates of a host: built from a recipe to an image, and looked up.
//!
//!   recipe ──► root file system ──► agent started in it ──► warm-up code ──► frozen ──► image
//!
//! A template is named by the hash of all its inputs. Building an existing one takes no time; an
//! interrupted build leaves a root that the next build reuses.

use crate::agent::{self, AGENT_DIR, AgentInfo};
use crate::connection::{AgentConnection, NUMBERS};
use crate::error::{Error, ErrorContext, Result};
use crate::host::Host;
use crate::live::LiveMachine;
use crate::pinned::PinnedImage;
use stasis_agent::Language;
use stasis_api::{EventKind, Limits, TemplateInfo, Timestamp};
use stasis_engine::{LaunchSpec, OutsideFds};
use stasis_protocol::{Done, ExecOrder, Order, Report};
use stasis_records::{HeldImage, TemplateRecord};
use stasis_template::{Progress, Recipe, Root, Size};
use std::time::Duration;

/// The default template's name.
pub const DEFAULT: &str = stasis_agent::DEFAULT_NAME;
/// Maximum time of a start, and of a recipe's warm-up code.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often the language's rehearsal is run.
const REHEARSALS: usize = 8;

/// The warm-up that a template adds to another one.
#[derive(Debug, Clone)]
pub struct MoreWarmUp {
    pub name: String,
    pub description: String,
    /// Code run after that of the other one's recipe.
    pub code: String,
}

impl MoreWarmUp {
    fn recipe(&self, base: &TemplateInfo) -> Result<Recipe> {
        let recipe = Recipe::parse(&base.recipe)?;
        let (name, description) = (self.name.clone(), self.description.clone());
        let warm_up = format!("{}\n{}", recipe.warm_up, self.code);
        Ok(Recipe { name, description, warm_up, ..recipe })
    }
}

impl Host {
    /// A template by name or digest; the default one for `None`.
    pub fn template(&self, name: Option<&str>) -> Result<TemplateRecord> {
        let name = name.unwrap_or(DEFAULT);
        let found = self.inner().records.template(name)?;
        // a template whose image an earlier program wrote in another format must be rebuilt
        let form = stasis_engine::SectionKind::form();
        let found = found.filter(|record| record.details["form"] == form.as_str());
        found.ok_or_else(|| Error::NoTemplate(name.to_owned()))
    }

    /// Holds a template in memory before the first machine starts from it. Parking it after that
    /// would slow down what the machine does first.
    pub fn warm_template(&self, name: Option<&str>) -> Result<()> {
        let image = self.template(name)?.image;
        self.inner().warm.note(image);
        Ok(())
    }

    pub fn templates(&self) -> Result<Vec<TemplateInfo>> {
        let all = self.inner().records.templates()?;
        Ok(all.into_iter().map(|record| record.template).collect())
    }

    /// Builds a template, unless it exists.
    pub fn build_template(&self, recipe: &Recipe, progress: &dyn Progress) -> Result<TemplateInfo> {
        self.build(recipe, None, progress)
    }

    /// The same for a template that `extends` another one.
    fn build(
        &self,
        recipe: &Recipe,
        extends: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<TemplateInfo> {
        let inner = self.inner();
        let (roots, cache) = (&inner.dirs.roots, &inner.dirs.cache);
        let root = stasis_template::build_root(recipe, roots, cache, progress)?;
        let language = language(recipe)?;
        let agent = agent::place(roots, &agent::own(language));
        let agent = agent.doing(|| format!("place the agent in {}", roots.display()))?;
        let form = stasis_engine::SectionKind::form();
        let recipe_digest = recipe.digest();
        let parts = [root.digest.as_str(), &recipe_digest, &agent, &form];
        let parts = parts.into_iter().chain(extends).collect::<Vec<_>>().join("\n");
        let digest = blake3::hash(parts.as_bytes()).to_hex().to_string();
        // the second of two callers finds what the first has built
        let _turn = inner.warming_up.lock();
        if let Some(known) = inner.records.template(&digest)? {
            return Ok(known.template);
        }
        progress.step("warm up", 0, None);
        let own_root = format!("{agent}+{}", root.name);
        let (image, known) = self.prepare(&root, &own_root, language, &recipe.warm_up)?;
        let template = TemplateInfo {
            name: recipe.name.clone(),
            digest,
            created_at: Timestamp::now(),
            language: language.name().into(),
            version: root.version.clone(),
            recipe: recipe.print(),
            image: image.id().to_string(),
            root: own_root,
        };
        let details = serde_json::json!({
            "packages": root.lock, "bytes": root.bytes, "form": form,
            "limits": limits_of(recipe), "agent": known, "extends": extends,
        });
        let record = TemplateRecord { template: template.clone(), image: image.id(), details };
        inner.records.add_template(&record, &image)?;
        drop(image);
        self.retire_older(&template)?;
        inner.tell_all(EventKind::TemplateBuilt, template.name.clone());
        progress.step("warm up", 1, Some(1));
        Ok(template)
    }

    /// Builds a template like `base`, unless it exists: the same root, and machines that have run
    /// more code. To policies and clients its machines are machines of `base`.
    pub fn extend_template(&self, base: &TemplateInfo, more: &MoreWarmUp) -> Result<TemplateInfo> {
        self.build(&more.recipe(base)?, Some(&base.name), &stasis_template::NoProgress)
    }

    /// The template that `extend_template` makes, if it exists.
    pub fn extended_template(
        &self,
        base: &TemplateInfo,
        more: &MoreWarmUp,
    ) -> Result<Option<TemplateInfo>> {
        let wanted = more.recipe(base)?.print();
        let found = self.template(Some(&more.name)).ok();
        // the root's name tells the agent's version, too
        let fits = |found: &TemplateRecord| {
            let own = &found.template;
            own.recipe == wanted && own.root == base.root && found.details["extends"] == *base.name
        };
        Ok(found.filter(fits).map(|found| found.template))
    }

    /// Removes templates whose name was reused and that no machine uses.
    fn retire_older(&self, new: &TemplateInfo) -> Result<()> {
        for old in self.templates()? {
            let unused = self.inner().records.template_users(&old.digest)? == 0;
            if old.name == new.name && old.digest != new.digest && unused {
                self.remove_template(&old.digest)?;
            }
        }
        Ok(())
    }

    /// Starts the agent in a root, warms it up, and takes its image.
    fn prepare(
        &self,
        root: &Root,
        own_root: &str,
        language: &dyn Language,
        code: &str,
    ) -> Result<(PinnedImage, AgentInfo)> {
        let interpreter = root.interpreter.to_string_lossy().into_owned();
        let program = LaunchSpec {
            argv: language.argv(&interpreter, AGENT_DIR),
            path: interpreter,
            env: root.env.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            cwd: root.home.to_string_lossy().into_owned(),
            ..LaunchSpec::default()
        };
        let (line, fds) = AgentConnection::open()?;
        let outside = OutsideFds { fds, numbers: NUMBERS.to_vec() };
        let engine = &self.inner().engine;
        let tree = engine.launch(own_root, program, outside)?;
        let mut live = LiveMachine { tree, line, _egress: None, awake: false, cpu_seen: None };
        let known = ready(&mut live, language)?;
        warm_up(&mut live, language, code)?;
        live.ask(&Order::Freeze, |report| matches!(report, Report::Frozen).then_some(()))?;
        let image = live.capture(self.inner(), "")?.image;
        live.tree.kill()?;
        Ok((PinnedImage(image), known))
    }

    /// Removes a template, unused ones that extend it, and their root. Refused while machines use
    /// it.
    pub fn remove_template(&self, name: &str) -> Result<()> {
        let inner = self.inner();
        let missing = || Error::NoTemplate(name.to_owned());
        let TemplateRecord { template, image, .. } =
            inner.records.template(name)?.ok_or_else(missing)?;
        for other in inner.records.templates()? {
            if other.details["extends"] == template.name.as_str() {
                match self.remove_template(&other.template.digest) {
                    Err(Error::TemplateInUse(..)) => {}
                    removed => removed?,
                }
            }
        }
        let users = inner.records.remove_template(&template.digest)?;
        if users > 0 {
            return Err(Error::TemplateInUse(template.name, users));
        }
        inner.standby.forget(image);
        inner.cool_down(image);
        inner.tell_all(EventKind::TemplateRemoved, template.name.clone());
        let own = agent::layers(&template.root).1;
        if self.templates()?.iter().all(|other| agent::layers(&other.root).1 != own) {
            stasis_template::remove(&inner.dirs.roots, own)?;
        }
        Ok(())
    }
}

/// The name that policies and clients know a template's machines by.
pub(crate) fn name_of(record: TemplateRecord) -> String {
    match record.details["extends"].as_str() {
        Some(base) => base.to_owned(),
        None => record.template.name,
    }
}

/// Default limits of a template's machines. Templates built before this was recorded have them in
/// their recipe.
pub(crate) fn template_limits(record: &TemplateRecord) -> Limits {
    match serde_json::from_value(record.details["limits"].clone()) {
        Ok(limits) => limits,
        Err(_) => Recipe::parse(&record.template.recipe)
            .map(|recipe| limits_of(&recipe))
            .unwrap_or_default(),
    }
}

fn limits_of(recipe: &Recipe) -> Limits {
    let own = &recipe.limits;
    // rounded up: a limit of a few bytes is not zero
    let mb = |size: Size| size.0.div_ceil(1 << 20);
    Limits {
        memory_mb: own.memory.map(mb),
        cpus: own.cpu,
        pids: own.pids.map(u64::from),
        disk_mb: own.disk.map(mb),
    }
}

fn language(recipe: &Recipe) -> Result<&'static dyn Language> {
    let unknown = || Error::Invalid(format!("unknown language {:?}", recipe.language));
    stasis_agent::language(&recipe.language).ok_or_else(unknown)
}

/// A new agent's report about itself.
fn ready(live: &mut LiveMachine, language: &dyn Language) -> Result<AgentInfo> {
    let (spoken, known) = live.expect_within(PATIENCE, |report| match report {
        Report::Ready { generation, language, orders, .. } => {
            Some((language, AgentInfo { generation, orders }))
        }
        _ => None,
    })?;
    match spoken == language.name() {
        true => Ok(known),
        false => Err(Error::Invalid(format!("the agent speaks {spoken:?}"))),
    }
}

/// Runs the recipe's code in a namespace of its own, so that its definitions are not visible to
/// users; then what the language rehearses.
fn warm_up(live: &mut LiveMachine, language: &dyn Language, code: &str) -> Result<()> {
    let done = executed(live, language.aside(code))?;
    if let Some(error) = done.error {
        return Err(Error::Invalid(format!("warm-up code failed: {}", error.traceback)));
    }
    for code in (0..REHEARSALS).flat_map(|_| language.rehearsal()) {
        executed(live, (*code).to_owned())?;
    }
    Ok(())
}

fn executed(live: &mut LiveMachine, code: String) -> Result<Done> {
    let order = Order::Exec(ExecOrder {
        seq: 0,
        code,
        max_bytes: 1 << 20,
        max_whole: 0,
        input: false,
        fetch: false,
        tools: false,
        prepared: None,
    });
    live.line.send(&order)?;
    live.expect_within(PATIENCE, |report| match report {
        Report::Done(done) => Some(done),
        _ => None,
    })
}
