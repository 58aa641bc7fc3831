//! The table of commands; each has its own file.

mod adopt;
mod branch;
mod compare;
mod completions;
mod config;
mod cp;
mod doctor;
mod exec;
mod explore;
mod export;
pub mod history;
mod import;
mod label;
mod login;
mod logout;
mod logs;
mod machine;
mod making;
mod mcp;
mod pairs;
mod peek;
mod promote;
mod ps;
mod repl;
mod rm;
mod rollback;
mod run;
mod serve;
mod status;
mod stop;
mod store;
mod template;
mod token;
pub mod tree;
pub mod undo;
mod watch;
mod whoami;

use crate::bench::Bench;
use crate::context::Context;
use crate::failure::{Exit, Result};
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Command {
    /// Run code once, on a machine made for it or on one that is there
    Run(run::Args),
    /// Talk to a machine line by line; its state is kept
    Repl(repl::Args),
    /// Make, list, change, remove, swap out and wake machines
    #[command(subcommand)]
    Machine(machine::Machine),
    /// Run code on a machine
    Exec(exec::Args),
    /// List machines, newest first
    Ls(machine::List),
    /// List the machines in memory, and what each runs
    Ps,
    /// Print the output and the end of an instruction, such as `work@3`
    Logs(logs::Args),
    /// Remove machines and all they hold
    Rm(rm::Args),
    /// Copy files into a machine or out of it, as `machine:path`
    Cp(cp::Args),
    /// List a machine's instructions and checkpoints
    History(history::Args),
    /// Take back a machine's last instruction
    Undo(undo::Args),
    /// Take a machine back to the state after an instruction
    Rollback(rollback::Args),
    /// Make new machines that go on from a machine's state
    Branch(branch::Args),
    /// Run candidates as branches, score each, and keep the best
    Explore(explore::Args),
    /// Say what differs between two machines or checkpoints
    Compare(compare::Args),
    /// Take variables and files over from another machine
    Adopt(adopt::Args),
    /// Give a branch its machine's name
    Promote(promote::Args),
    /// Draw machines and their branches
    Tree(tree::Args),
    /// Name a checkpoint
    Label(label::Args),
    /// Look at variables and files of the past
    Peek(peek::Args),
    /// Write a machine to one file
    Export(export::Args),
    /// Take a machine in from a file
    Import(import::Args),
    /// Build, list, look at and remove what machines start from
    #[command(subcommand)]
    Template(template::Template),
    /// Look after what is on disk
    #[command(subcommand)]
    Store(store::Store),
    /// Make, list and revoke tokens of a service
    #[command(subcommand)]
    Token(token::Token),
    /// Keep a service's address and token for the commands that follow
    Login(login::Args),
    /// Forget what `login` kept
    Logout,
    /// Say which service is used, and who it takes you for
    Whoami,
    /// Say whether a keeper runs, and what is in memory
    Status(status::Args),
    /// Put all machines on disk and end the keeper
    Stop,
    /// Offer machines as a service
    Serve(serve::Args),
    /// Give an agent machines, by MCP over standard streams
    Mcp(mcp::Args),
    /// Show the settings, and where each came from
    Config,
    /// Print a script that completes commands in a shell
    Completions(completions::Args),
    /// Check what this host can do, and say how to mend what is missing
    Doctor,
    /// Measure this build on this machine
    #[command(subcommand)]
    Bench(Bench),
}

impl Command {
    /// Whether it uses what `login` kept.
    pub fn is_signed_in(&self) -> bool {
        !matches!(self, Command::Login(_) | Command::Logout)
    }

    pub fn run(self, context: &Context) -> Result<ExitCode> {
        match self {
            Command::Run(args) => run::run(args, context),
            Command::Repl(args) => repl::run(args, context),
            Command::Machine(command) => command.run(context),
            Command::Exec(args) => exec::run(args, context),
            Command::Ls(args) => machine::list(args, context),
            Command::Ps => ps::run(context),
            Command::Logs(args) => logs::run(args, context),
            Command::Rm(args) => rm::run(args, context),
            Command::Cp(args) => cp::run(args, context),
            Command::History(args) => history::run(args, context),
            Command::Undo(args) => undo::run(args, context),
            Command::Rollback(args) => rollback::run(args, context),
            Command::Branch(args) => branch::run(args, context),
            Command::Explore(args) => explore::run(args, context),
            Command::Compare(args) => compare::run(args, context),
            Command::Adopt(args) => adopt::run(args, context),
            Command::Promote(args) => promote::run(args, context),
            Command::Tree(args) => tree::run(args, context),
            Command::Label(args) => label::run(args, context),
            Command::Peek(args) => peek::run(args, context),
            Command::Export(args) => export::run(args, context),
            Command::Import(args) => import::run(args, context),
            Command::Template(command) => command.run(context),
            Command::Store(command) => command.run(context),
            Command::Token(command) => command.run(context),
            Command::Login(args) => login::run(args, context),
            Command::Logout => logout::run(context),
            Command::Whoami => whoami::run(context),
            Command::Status(args) => status::run(&args, context),
            Command::Stop => stop::run(context),
            Command::Serve(args) => serve::run(args, context),
            Command::Mcp(args) => mcp::run(args, context),
            Command::Config => config::run(context),
            Command::Completions(args) => completions::run(&args),
            Command::Doctor => doctor::run(context),
            // 1 says that a bar was missed
            Command::Bench(command) => command.run().map_err(|failure| failure.exit(Exit::Usage)),
        }
    }
}
