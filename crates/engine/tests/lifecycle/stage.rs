//! One test's engine and the program it happens to.

use crate::common::{BEFORE, Bench, Program, Result, Saved, Spec, Watch, same_as_undisturbed};
use stasis_engine::WallsConfig;

pub struct Stage<'a> {
    pub bench: Bench,
    pub spec: &'a Spec,
    /// The program as launched, as long as the event lets it live.
    pub source: Option<Program>,
}

impl<'a> Stage<'a> {
    pub fn open(spec: &'a Spec, walls: WallsConfig, watch: &Watch) -> Result<Stage<'a>> {
        Ok(Stage { bench: Bench::start_with(watch, walls)?, spec, source: None })
    }

    /// Launches the program and has it do something.
    pub fn begin(&mut self) -> Result<&mut Program> {
        let source = self.source.insert(self.bench.launch(self.spec)?);
        source.speak(BEFORE)?;
        Ok(source)
    }

    pub fn capture_source(&mut self) -> Result<Saved> {
        let source = self.source.as_ref().expect("an event captures after it began");
        self.bench.capture(source)
    }

    /// Begins, captures, and ends the source.
    pub fn only_image(&mut self) -> Result<Saved> {
        self.begin()?;
        self.only_image_of_source()
    }

    /// Captures and ends a source that has begun.
    pub fn only_image_of_source(&mut self) -> Result<Saved> {
        let saved = self.capture_source()?;
        self.source.take().map_or(Ok(()), Program::kill)?;
        Ok(saved)
    }

    /// Restores, says `script`, and compares all of it with an undisturbed run.
    pub fn restored_copy_is_right(&self, saved: &Saved, script: &[&str]) -> Result<()> {
        let mut copy = self.bench.restore(saved)?;
        copy.speak(script)?;
        self.finish(copy)
    }

    /// A program's whole conversation must be that of an undisturbed run.
    pub fn finish(&self, program: Program) -> Result<()> {
        same_as_undisturbed(&self.bench, self.spec, program)
    }

    pub fn finish_source(&mut self) -> Result<()> {
        let source = self.source.take().expect("an event ends with what it began");
        self.finish(source)
    }
}
