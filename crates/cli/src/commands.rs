//! The table of commands; each has its own file.

mod adopt;
mod approvals;
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
pub mod mcp_v8;
mod pairs;
mod peek;
mod policy;
mod promote;
mod ps;
mod repl;
mod rm;
mod rollback;
mod run;
mod secret;
mod serve;
mod status;
mod stop;
mod store;
mod template;
mod token;
mod tools;
pub mod tree;
pub mod undo;
mod watch;
mod whoami;

use crate::context::Context;
use crate::failure::{Exit, Result};
use clap::Subcommand;
use stasis_api::ApprovalChoice;
use stasis_bench::Bench;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum CliCommand {
    /// Run code on a temporary or an existing machine
    Run(run::Args),
    /// Open an interactive session on a machine
    Repl(repl::Args),
    /// Create, list, change, remove, swap out and wake machines
    #[command(subcommand)]
    Machine(machine::MachineCommand),
    /// Run code on a machine
    Exec(exec::Args),
    /// List machines, newest first
    Ls(machine::ListArgs),
    /// List the machines in memory and their running instructions
    Ps,
    /// Print the output and result of an instruction, such as `work@3`
    Logs(logs::Args),
    /// Remove machines with all their data
    Rm(rm::Args),
    /// Copy files to or from a machine (`machine:path`)
    Cp(cp::Args),
    /// List a machine's instructions and checkpoints
    History(history::Args),
    /// Undo a machine's last instruction, or several
    Undo(undo::Args),
    /// Redo undone instructions, as long as nothing new ran
    Redo(undo::Args),
    /// Return a machine to the state after an instruction
    Rollback(rollback::Args),
    /// Create new machines that continue from a machine's state
    Branch(branch::Args),
    /// Run candidates on branches, score each, and keep the best
    Explore(explore::Args),
    /// Show the differences between two machines or checkpoints
    Compare(compare::Args),
    /// Copy variables and files from another machine
    Adopt(adopt::Args),
    /// Replace a machine by its branch
    Promote(promote::Args),
    /// Show machines and their branches as a tree
    Tree(tree::Args),
    /// Label a checkpoint
    Label(label::Args),
    /// Inspect variables and files of an earlier state
    Peek(peek::Args),
    /// Export a machine to a file
    Export(export::Args),
    /// Import a machine from a file
    Import(import::Args),
    /// Build, list, inspect and remove templates
    #[command(subcommand)]
    Template(template::TemplateCommand),
    /// Inspect, clean up and check the store on disk
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Create, list and revoke tokens of a service
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Set, list, show, remove, check, test and explain policies of machines' networks
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Set, list and remove keys that machines use without having them
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// List tool servers of this host, and log in to them
    #[command(subcommand)]
    Tools(tools::ToolsCommand),
    /// List calls of tools that wait for approval
    Approvals(approvals::ApprovalListArgs),
    /// Allow a call of a tool that waits
    Approve(approvals::ApprovalAnswerArgs),
    /// Deny a call of a tool that waits
    Deny(approvals::ApprovalAnswerArgs),
    /// Store a service's address and token for later commands
    Login(login::Args),
    /// Remove the stored login
    Logout,
    /// Show the service in use and your account
    Whoami,
    /// Show whether a daemon runs, and the machines in memory
    Status(status::Args),
    /// Save all machines to disk and stop the daemon
    Stop,
    /// Serve machines over HTTP
    Serve(serve::Args),
    /// Run an MCP server over standard streams
    Mcp(mcp::Args),
    /// Run an MCP server with the tools and flags of mcp-v8
    McpV8(mcp_v8::Args),
    /// Show the settings and their sources
    Config,
    /// Print a shell completion script
    Completions(completions::Args),
    /// Check the requirements of this host, with a fix for each missing one
    Doctor,
    /// Benchmark this build on this host
    #[command(subcommand)]
    Bench(Bench),
}

/// Answers a shell's completion request and exits; does nothing otherwise.
pub fn answer_shell() {
    completions::answer();
}

impl CliCommand {
    /// Whether it uses the stored login.
    pub fn is_signed_in(&self) -> bool {
        !matches!(self, CliCommand::Login(_) | CliCommand::Logout)
    }

    pub fn run(self, context: &Context) -> Result<ExitCode> {
        match self {
            CliCommand::Run(args) => run::run(args, context),
            CliCommand::Repl(args) => repl::run(args, context),
            CliCommand::Machine(command) => command.run(context),
            CliCommand::Exec(args) => exec::run(args, context),
            CliCommand::Ls(args) => machine::list(args, context),
            CliCommand::Ps => ps::run(context),
            CliCommand::Logs(args) => logs::run(args, context),
            CliCommand::Rm(args) => rm::run(args, context),
            CliCommand::Cp(args) => cp::run(args, context),
            CliCommand::History(args) => history::run(args, context),
            CliCommand::Undo(args) => undo::run(undo::Direction::Undo, args, context),
            CliCommand::Redo(args) => undo::run(undo::Direction::Redo, args, context),
            CliCommand::Rollback(args) => rollback::run(args, context),
            CliCommand::Branch(args) => branch::run(args, context),
            CliCommand::Explore(args) => explore::run(args, context),
            CliCommand::Compare(args) => compare::run(args, context),
            CliCommand::Adopt(args) => adopt::run(args, context),
            CliCommand::Promote(args) => promote::run(args, context),
            CliCommand::Tree(args) => tree::run(args, context),
            CliCommand::Label(args) => label::run(args, context),
            CliCommand::Peek(args) => peek::run(args, context),
            CliCommand::Export(args) => export::run(args, context),
            CliCommand::Import(args) => import::run(args, context),
            CliCommand::Template(command) => command.run(context),
            CliCommand::Store(command) => command.run(context),
            CliCommand::Token(command) => command.run(context),
            CliCommand::Policy(command) => command.run(context),
            CliCommand::Secret(command) => command.run(context),
            CliCommand::Tools(command) => tools::run(command, context),
            CliCommand::Approvals(args) => approvals::list(&args, context),
            CliCommand::Approve(args) => approvals::answer(ApprovalChoice::Allow, args, context),
            CliCommand::Deny(args) => approvals::answer(ApprovalChoice::Deny, args, context),
            CliCommand::Login(args) => login::run(args, context),
            CliCommand::Logout => logout::run(context),
            CliCommand::Whoami => whoami::run(context),
            CliCommand::Status(args) => status::run(&args, context),
            CliCommand::Stop => stop::run(context),
            CliCommand::Serve(args) => serve::run(args, context),
            CliCommand::Mcp(args) => mcp::run(args, context),
            CliCommand::McpV8(args) => mcp_v8::run(args, context),
            CliCommand::Config => config::run(context),
            CliCommand::Completions(args) => completions::run(&args),
            CliCommand::Doctor => doctor::run(context),
            // 1 means that a bar was missed
            CliCommand::Bench(command) => {
                command.run().map_err(|failure| failure.exit(Exit::Usage))
            }
        }
    }
}
