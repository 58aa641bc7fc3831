//! Texts for agents: the server's instructions, and a prompt that explains machines.

use rmcp::ErrorData;
use rmcp::model::Role;
use rmcp::model::{GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage};

pub const INSTRUCTIONS: &str = "\
A machine runs code and keeps its variables, imports, files and processes between calls, \
conversations and restarts. Call run_code without a machine to create one, then name that machine \
in every call that should continue from there. Each result names machine@seq, the state after it. \
undo returns to earlier states; branch_machine and explore try several approaches from one state. \
Code that exceeds its timeout is interrupted and the state is kept; set timeout_seconds for long \
work.";

const NAME: &str = "work-with-machines";
const ABOUT: &str = "How to work with machines that keep their state.";

const GUIDE: &str = "\
You have machines: sessions with their own files and processes, which keep their state.

1. Start with run_code without a machine. The result names the machine it created. Use that name \
in every further call; without a name you get a new, empty machine each time.
2. Work in small steps. The next call can use everything an earlier one defined: load data once, \
keep it in a variable, inspect it, continue. The result contains the value of the last expression, \
so there is no need to print it, and figures as images.
3. When code fails, the machine keeps everything from before the error. Fix and run only the part \
that failed.
4. When a step did damage, call undo. With the number after the @ of an earlier result it returns \
to that state. Variables and files return with it.
5. To compare approaches, call explore with the code of each approach and an expression that \
scores them: the best one replaces the machine. Or call branch_machine and work on each branch; \
if available, compare_machines shows the differences, adopt copies the good parts, and \
promote_branch replaces the parent by a branch.
6. Set timeout_seconds for long work. Code that exceeds it is interrupted, and the machine keeps \
its state.
7. list_machines lists existing machines, also from earlier conversations. Tag machines so that \
you can find them again.";

pub fn prompts() -> Vec<Prompt> {
    let task = PromptArgument::new("task").with_description("The task.");
    let prompt = Prompt::new(NAME, Some(ABOUT), Some(vec![task.with_required(false)]));
    vec![prompt.with_title("Work with machines")]
}

pub fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResult, ErrorData> {
    if request.name != NAME {
        let words = format!("unknown prompt `{}`", request.name);
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
