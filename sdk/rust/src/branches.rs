//! Branches of a machine: created, compared, adopted, promoted.

use crate::transport::{Call, Transport, at};
use crate::types::{
    AdoptRequest, Adopted, BranchEnd, BranchLine, BranchRequest, Branches, ExploreRequest,
    Explored, Machine as Info, PromoteRequest, Promoted, Vary,
};
use crate::{Error, Machine, Result, Streamed};
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;

impl From<&str> for Vary {
    fn from(code: &str) -> Vary {
        Vary { code: Some(code.to_owned()), ..Vary::default() }
    }
}

/// Options of [`Machine::attempt_with`].
#[derive(Debug, Clone, Copy, Default)]
pub struct AttemptOptions {
    /// Reseed the branch's random generators.
    pub reseed: bool,
    /// Keep the old machine, under the branch's name.
    pub keep: bool,
}

impl Machine {
    /// A new machine that continues from this one's state.
    pub async fn branch(&self) -> Result<Machine> {
        self.branch_as(BranchRequest::default()).await
    }

    async fn branch_as(&self, request: BranchRequest) -> Result<Machine> {
        let made = self.branches(request).await?;
        made.into_iter().next().ok_or_else(|| Error::protocol("no branch was made"))
    }

    /// Branches with options: count, names, an earlier state, tags.
    pub async fn branches(&self, request: BranchRequest) -> Result<Vec<Machine>> {
        let call = Call::post(self.path("/branch")?).body(&request)?;
        let made = self.transport().json::<Branches>(call).await?.machines;
        let own = |info: Info| Machine::new(self.transport().clone(), info.name);
        Ok(made.into_iter().map(own).collect())
    }

    /// Creates a branch for each of `request.vary` and runs them in parallel; yields results as
    /// branches finish.
    pub async fn vary(&self, mut request: BranchRequest) -> Result<Streamed<BranchEnd>> {
        if request.names.is_empty() {
            request.count = Some(request.vary.len() as u64);
        }
        request.stream = Some(true);
        let call = Call::post(self.path("/branch")?).without_timeout().body(&request)?;
        let lines = self.transport().lines::<BranchLine>(&call).await?;
        let ends = stream::unfold(lines, |mut lines| async {
            loop {
                let line = match lines.next().await? {
                    Ok(line) => line,
                    Err(error) => return Some((Err(error), lines)),
                };
                match line.r#type.as_deref() {
                    Some("end") => return Some((end(line), lines)),
                    Some("over") => return None,
                    _ => {}
                }
            }
        });
        Ok(ends.boxed())
    }

    /// Runs candidates as branches and keeps the one with the best score under this name.
    pub async fn explore(&self, request: &ExploreRequest) -> Result<Explored> {
        let call = Call::post(self.path("/explore")?).without_timeout().body(request)?;
        self.transport().json(call).await
    }

    /// Copies variables and files from another machine, or a checkpoint of one. Names that both
    /// sides changed since they parted are conflicts: nothing is copied without `force`.
    pub async fn adopt(&self, request: &AdoptRequest) -> Result<Adopted> {
        let call = Call::post(self.path("/adopt")?).without_timeout().body(request)?;
        self.transport().json(call).await
    }

    /// Exchanges names with the parent, or another machine; returns this machine under its new
    /// name, and the one that had it.
    pub async fn promote(&self, onto: Option<&str>) -> Result<(Machine, Machine)> {
        let promoted = self.promoted(onto, false).await?;
        let own = |info: Info| Machine::new(self.transport().clone(), info.name);
        Ok((own(promoted.machine), own(promoted.former)))
    }

    async fn promoted(&self, onto: Option<&str>, remove: bool) -> Result<Promoted> {
        let asked = PromoteRequest { onto: onto.map(str::to_owned), remove: Some(remove) };
        let call = Call::post(self.path("/promote")?).body(&asked)?;
        self.transport().json(call).await
    }

    /// Runs a function on a branch. If it succeeds, the branch replaces this machine; if it fails,
    /// the branch is removed. The old machine is removed, unless it ran something meanwhile: then
    /// it is returned too.
    pub async fn attempt<T>(
        &self,
        work: impl AsyncFnOnce(&Machine) -> Result<T>,
    ) -> Result<(T, Option<Machine>)> {
        self.attempt_with(AttemptOptions::default(), work).await
    }

    /// The same with options: with `keep` the old machine is always returned.
    pub async fn attempt_with<T>(
        &self,
        AttemptOptions { reseed, keep }: AttemptOptions,
        work: impl AsyncFnOnce(&Machine) -> Result<T>,
    ) -> Result<(T, Option<Machine>)> {
        let request = BranchRequest { reseed: Some(reseed), ..BranchRequest::default() };
        let branch = self.branch_as(request).await?;
        match work(&branch).await {
            Ok(value) => {
                let Promoted { former, removed, .. } =
                    branch.promoted(Some(self.name()), !keep).await?;
                let kept = removed != Some(true);
                let former = kept.then(|| Machine::new(self.transport().clone(), former.name));
                Ok((value, former))
            }
            Err(error) => {
                branch.remove().await?;
                Err(error)
            }
        }
    }

    /// The state after an instruction, to inspect without going back.
    pub fn at(&self, seq: u64) -> Past {
        Past { transport: self.transport().clone(), machine: self.name().to_owned(), seq }
    }
}

fn end(line: BranchLine) -> Result<BranchEnd> {
    let (Some(index), Some(machine)) = (line.index, line.machine) else {
        return Err(Error::protocol("a branch without a name ended"));
    };
    let BranchLine { error, instruction, output, .. } = line;
    Ok(BranchEnd { error, index, instruction, machine, output })
}

/// A machine's state after an instruction, read-only.
#[derive(Debug, Clone)]
pub struct Past {
    transport: Arc<Transport>,
    machine: String,
    seq: u64,
}

impl Past {
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Variables of that state.
    pub async fn variables(&self) -> Result<Vec<crate::types::Var>> {
        let call = Call::get(self.path("/vars")?);
        Ok(self.transport.json::<crate::types::VarList>(call).await?.vars)
    }

    /// A directory of that state.
    pub async fn files(&self, path: &str) -> Result<Vec<crate::types::FileView>> {
        let call = Call::get(self.path("/files")?).query("path", path);
        Ok(self.transport.json::<crate::types::FileViews>(call).await?.files)
    }

    /// A file of that state.
    pub fn read(&self, path: &str) -> Streamed<Vec<u8>> {
        let call = self.path("/file").map(|at| Call::get(at).query("path", path));
        crate::files::resumed(self.transport.clone(), call, 0..u64::MAX)
    }

    fn path(&self, rest: &str) -> Result<String> {
        at(&self.machine, &format!("/at/{}{rest}", self.seq))
    }
}
