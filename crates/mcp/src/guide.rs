//! Words for agents: the server's instructions, and a prompt that teaches to work with machines.

use rmcp::ErrorData;
use rmcp::model::Role;
use rmcp::model::{GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage};

pub const INSTRUCTIONS: &str = "\
Machines run code and never forget: variables, imports, files and processes stay between calls, \
between conversations and over restarts. Call run_code without a machine to get one, then name \
that machine in every call that should go on from there. Each result carries machine@seq, the \
state after it: undo and roll_back return to earlier states, branch_machine tries several ways \
from one. The code that runs past its timeout is interrupted and the state is kept; give \
timeout_seconds for long work.";

pub const FOREVERVM_INSTRUCTIONS: &str = "\
Make a REPL with create-python-repl and run code in it with run-python-in-repl. The REPL keeps its \
state for good.";

pub const FORKD_INSTRUCTIONS: &str = "\
list_snapshots shows states to start from; spawn_sandboxes starts sandboxes from one. Run commands \
with exec_command and Python with eval_code: a sandbox keeps its state between calls. \
branch_sandbox keeps that state as a snapshot, from which more sandboxes can start.";

const NAME: &str = "work-with-machines";
const ABOUT: &str = "How to work with machines that keep their state.";

const GUIDE: &str = "\
You have machines: Python sessions with their own files and processes that keep everything.

1. Start with run_code without a machine. The result names the machine it made. Use that name in \
every further call; without a name you get a new, empty machine each time.
2. Work in small steps. What one call defined, the next one can use: load data once, keep it in a \
variable, look at it, go on. The value of the last expression comes back, so there is no need to \
print it. Figures come back as images.
3. When code fails, the machine is still there with everything before the error. Fix and run only \
what failed.
4. When a step did damage, call undo, or roll_back with the number after the @ of an earlier \
result. Files and variables return to what they were.
5. To compare ways to go on, call explore with a piece of code for each way and an expression that \
scores them: the best one takes the machine's place. Or call branch_machine and give each branch \
its own try; compare_machines says what differs, adopt takes the good parts over, and \
promote_branch lets a branch take its parent's place. What was there stays.
6. For work that takes long give timeout_seconds. Code that runs out of time is interrupted and \
its state is kept.
7. list_machines and show_history tell what was there before, also from earlier conversations. Tag \
machines so that they can be found again.";

pub fn prompts() -> Vec<Prompt> {
    let task = PromptArgument::new("task").with_description("What is to be done.");
    let prompt = Prompt::new(NAME, Some(ABOUT), Some(vec![task.with_required(false)]));
    vec![prompt.with_title("Work with machines")]
}

pub fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResult, ErrorData> {
    if request.name != NAME {
        let words = format!("there is no prompt named `{}`", request.name);
        return Err(ErrorData::invalid_params(words, None));
    }
    let arguments = request.arguments.as_ref();
    let task = arguments.and_then(|arguments| arguments.get("task")?.as_str());
    let text = match task {
        Some(task) => format!("{GUIDE}\n\nThe task: {task}"),
        None => GUIDE.to_owned(),
    };
    let messages = vec![PromptMessage::new_text(Role::User, text)];
    Ok(GetPromptResult::new(messages).with_description(ABOUT))
}
