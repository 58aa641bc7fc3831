//! mcp-v8's surface, row by row: what works and which test shows it, what differs on purpose, why,
//! and which test shows what happens instead. Flags are in
//! `crates/cli/src/commands/mcp_v8/flags.rs`, each with a test. Section 5 is in `environment.rs`,
//! where each row is code that runs.

use std::collections::HashMap;
use std::path::Path;

enum Row {
    /// Shown by this test, in this file below `crates`.
    Works(&'static str, &'static str),
    /// Why, and the test that shows what happens instead, in this file below `crates`.
    Differs(&'static str, &'static str, &'static str),
}

use Row::{Differs, Works};

const CORE: &str = "mcpv8/tests/mcpv8.rs";
const FILES: &str = "mcpv8/tests/files.rs";
const MCP: &str = "mcp/tests/v8.rs";
const HTTP: &str = "server/tests/service/v8.rs";
const CLI: &str = "cli/tests/mcp_v8.rs";
const FLAGS: &str = "cli/src/commands/mcp_v8/flags.rs";
const TOOLS: &str = "mcpv8/src/tools.rs";
const PAGES: &str = "mcpv8/src/pages.rs";
const TEXTS: &str = "mcpv8/src/texts.rs";
const WASM: &str = "mcpv8/src/wasm.rs";
const ENVIRONMENT: &str = "mcpv8/tests/environment.rs";
const SETUP: &str = "mcp/tests/v8_setup.rs";
const CLI_SETUP: &str = "cli/tests/mcp_v8_setup.rs";
const CLI_FILES: &str = "cli/tests/mcp_v8_files.rs";
const CLI_TOOLS: &str = "cli/tests/mcp_v8_tools.rs";
const UPSTREAM: &str = "machine/tests/upstream.rs";

const POLICIES: &str = "mcpv8/tests/policies.rs";
const POLICY: &str = "policy/src/v8/tests.rs";
const STATELESS: Row = Works(MCP, "stateless_runs_answer_with_their_output");
const SESSION: Row = Works(MCP, "a_connection_is_a_session_and_a_named_one_outlives_it");
const OFFICIAL: Row = Works(CLI, "the_official_client_over_both_transports");
const LOST_NOTHING: Row = Works(CORE, "a_failed_run_loses_nothing_and_heaps_are_states");
const MODULES: Row = Works(CORE, "stateless_runs_are_modules_on_machines_of_their_own");
const ENDED: Row = Works(CORE, "hot_loops_end_at_their_limit_and_runs_can_be_cancelled");
const POLLED: Row = Works(HTTP, "runs_by_polling_waiting_and_streaming");
const REFUSED: Row = Works(HTTP, "refusals");
const TASKS: Row = Works(SETUP, "runs_that_last_are_tasks_and_a_cancelled_task_stops_its_run");
const MODULE_STUBS: Row = Works(SETUP, "modules_by_flag_work_with_heaps_and_have_stubs");

const SERVERS: Row = Works(CLI_TOOLS, "upstream_servers_and_stub_tools");

const SURFACE: &[(&str, &str, Row)] = &[
    ("1.1", "stdio", OFFICIAL),
    ("1.1", "Streamable HTTP, with and without sessions", SESSION),
    ("1.1", "HTTP+SSE", Works(CLI, "the_typescript_clients_over_all_transports")),
    (
        "1.1",
        "POST /message",
        Differs(
            "the stream names /sse/<set>/messages; clients follow it",
            CLI,
            "the_typescript_clients_over_all_transports",
        ),
    ),
    ("1.1", "Host check", OFFICIAL),
    (
        "1.1",
        "Origin check",
        Differs(
            "a foreign origin is refused also without --allowed-origins",
            CLI,
            "the_official_client_over_both_transports",
        ),
    ),
    ("1.2", "tools, resources", Works(MCP, "resources_and_instructions")),
    ("1.2", "instructions", OFFICIAL),
    (
        "1.2",
        "--instructions, --run-js-description",
        Works(CLI_SETUP, "modules_skills_and_texts_by_flag"),
    ),
    ("1.3", "one JSON object as text", STATELESS),
    (
        "1.3",
        "isError is never set",
        Differs(
            "failures are marked, and are in the same JSON",
            MCP,
            "stateless_runs_answer_with_their_output",
        ),
    ),
    ("1.3", "hidden tools can be called", SESSION),
    ("1.3", "nullable parameters, sorted tools", Works(TOOLS, "arguments_by_mode")),
    ("1.4", "run_js", SESSION),
    ("1.4", "get_execution", SESSION),
    ("1.4", "get_execution_output", SESSION),
    ("1.4", "cancel_execution", OFFICIAL),
    ("1.4", "list_executions", OFFICIAL),
    ("1.4", "get_artifact", STATELESS),
    ("1.4", "list_artifacts", OFFICIAL),
    ("1.4", "list_sessions", SESSION),
    ("1.4", "list_session_snapshots", SESSION),
    ("1.4", "get_heap_tags, set_heap_tags, delete_heap_tags", OFFICIAL),
    ("1.4", "query_heaps_by_tags", SESSION),
    (
        "1.4",
        "fs_ls, fs_pull, fs_label, fs_log, fs_push, fs_reset, fs_merge",
        Works(CLI, "the_typescript_clients_over_all_transports"),
    ),
    ("1.4", "mode fs", Works(FILES, "files_persist_and_globals_do_not")),
    ("1.4", "mode heap+fs", Works(FILES, "heaps_with_files_have_both")),
    (
        "1.4",
        "fs_push without expected",
        Differs("the label must be new, so no push is lost", HTTP, "labels_of_file_trees"),
    ),
    ("1.4", "fs_merge", Works(FILES, "merges")),
    ("1.5", "stateless run_js, with artifacts", STATELESS),
    ("1.6", "code or file, not both", STATELESS),
    ("1.6", "file", Works(CLI_FILES, "files_run_where_a_flag_allows_them")),
    (
        "1.6",
        "the server reads the file",
        Differs(
            "`stasis mcp-v8` does, as its user; the daemon opens no path",
            CLI_FILES,
            "files_run_where_a_flag_allows_them",
        ),
    ),
    ("1.6", "heap, else the session's latest, else fresh", LOST_NOTHING),
    (
        "1.6",
        "an unknown heap starts fresh",
        Differs(
            "it is an error: state is not lost silently",
            MCP,
            "a_connection_is_a_session_and_a_named_one_outlives_it",
        ),
    ),
    ("1.6", "fs", Works(FILES, "heaps_with_files_have_both")),
    (
        "1.6",
        "without session and fs there is no mount",
        Differs("/work starts empty", FILES, "files_persist_and_globals_do_not"),
    ),
    ("1.6", "statuses", ENDED),
    ("1.6", "a failed run has no heap and no entry", LOST_NOTHING),
    ("1.6", "pages of lines", Works(PAGES, "pages_of_lines")),
    ("1.6", "line_offset 0", Works(PAGES, "a_client_that_starts_at_zero_sees_every_line_once")),
    ("1.6", "pages of bytes", Works(PAGES, "pages_of_bytes_are_text")),
    (
        "1.6",
        "output appears in pages of 4096 bytes",
        Differs("each line at once", HTTP, "runs_by_polling_waiting_and_streaming"),
    ),
    ("1.7", "X-MCP-Session-Id on initialize", SESSION),
    (
        "1.7",
        "without it there is no session",
        Differs(
            "the connection is one",
            MCP,
            "a_connection_is_a_session_and_a_named_one_outlives_it",
        ),
    ),
    ("1.7", "--session-id, --session-fork-from", Works(CORE, "tags_accounts_and_forks")),
    ("1.8", "tasks of revision 2025-11-25", TASKS),
    (
        "1.8",
        "with heaps a task is over at once; cancelling it stops nothing",
        Differs(
            "a task is its run",
            SETUP,
            "runs_that_last_are_tasks_and_a_cancelled_task_stops_its_run",
        ),
    ),
    ("1.9", "stubs of WebAssembly modules", MODULE_STUBS),
    ("1.9", "stubs of upstream servers", SERVERS),
    ("2", "GET /, /llms.txt, /docs", OFFICIAL),
    ("2", "GET /api/version", Works(TEXTS, "operations_have_the_names_generated_clients_use")),
    ("2", "POST /api/exec", POLLED),
    ("2", "its refusals", REFUSED),
    ("2", "GET /api/executions", REFUSED),
    ("2", "GET /api/executions/{id}", POLLED),
    ("2", "GET /api/executions/{id}/output", POLLED),
    ("2", "POST /api/executions/{id}/cancel", POLLED),
    ("2", "GET /api/artifacts, /api/artifacts/{key}", REFUSED),
    (
        "2",
        "GET /api/cli",
        Differs("no client programs are carried: the list is empty", HTTP, "refusals"),
    ),
    ("2", "/api/fs/*", Works(HTTP, "labels_of_file_trees")),
    ("2", "operation ids", Works(TEXTS, "operations_have_the_names_generated_clients_use")),
    (
        "2",
        "any content type from any page",
        Differs("a page of another origin is refused", HTTP, "refusals"),
    ),
    (
        "3.1",
        "flags, environment and file",
        Works(FLAGS, "every_flag_works_or_says_what_applies_or_is_refused"),
    ),
    (
        "3.1",
        "precedence",
        Works(FLAGS, "the_line_wins_over_the_environment_and_that_over_the_file"),
    ),
    (
        "3.2",
        "mcp-v8-cli",
        Differs(
            "its own client program speaks the routes; none is provided",
            HTTP,
            "runs_by_polling_waiting_and_streaming",
        ),
    ),
    ("5", "what code finds", Works(ENVIRONMENT, "the_environment_of_code")),
    ("5.1", "an uncaught error fails the run, with its stack", MODULES),
    ("5.6", "artifacts outlive their run", Works(CORE, "artifacts_outlive_their_run")),
    ("5.6", "files persist", Works(FILES, "files_persist_and_globals_do_not")),
    ("5.6", "child_process, Deno.Command", Works(CORE, "programs_end_with_their_output")),
    ("4.4", "OAuth for upstream servers", Works(UPSTREAM, "a_person_allows_a_server_in_a_browser")),
    (
        "4.4",
        "all servers connect at start-up",
        Works(CLI_TOOLS, "servers_that_cannot_be_used_stop_the_program"),
    ),
    (
        "4.4",
        "the list of tools is never refreshed",
        Differs("it follows changes", UPSTREAM, "streamable_http"),
    ),
    ("5.6", "mcp.servers, mcp.listTools, mcp.callTool", SERVERS),
    (
        "5.7",
        "no WebAssembly with heaps",
        Differs(
            "instances persist in a session",
            CORE,
            "state_beyond_v8_snapshots_persists_in_a_session",
        ),
    ),
    ("4.1", "remote OPA", Works(POLICIES, "a_remote_server_decides_about_files")),
    ("4.1", "mode, empty lists", Works(POLICY, "modes_follow_the_specification")),
    (
        "4.2",
        "fetch, tools, modules",
        Works(POLICY, "documented_policies_give_the_documented_answers"),
    ),
    ("4.2", "websocket, http2", Works(POLICY, "websockets_and_http2_have_their_own_documents")),
    ("4.2", "filesystem", Works(POLICIES, "a_remote_server_decides_about_files")),
    ("4.2", "subprocess", Works(POLICIES, "programs_ask_and_hooks_see_their_output")),
    ("4.2", "fs_snapshot, modules", Works(POLICIES, "imports_and_labels_ask_their_categories")),
    ("4.2", "run_js_file", Works(CLI_FILES, "a_policy_decides_about_the_real_path")),
    ("4.2", "mcp_headers", Works(SETUP, "policies_see_the_headers_of_a_connection")),
    ("5.7", "WebAssembly modules by flag", Works(CLI_SETUP, "modules_skills_and_texts_by_flag")),
    ("5.7", "limits on declared memories and tables", Works(WASM, "what_is_declared_must_fit")),
    ("5.8", "time limits", ENDED),
    ("5.8", "files are bounded", Works(FILES, "leftovers_of_code_are_bounded")),
    ("7.1", "JWKS", Works(CLI_SETUP, "tokens_are_checked_with_a_key_set")),
    ("13", "both kinds of client at one path", Works(SETUP, "skills_and_texts_of_a_setup")),
    ("13", "skills", Works(SETUP, "skills_and_texts_of_a_setup")),
    ("13", "tasks", TASKS),
    ("13", "hooks: pre", Works(POLICIES, "scripts_rewrite_deny_and_run_out_of_time")),
    ("13", "hooks: stack", Works(POLICIES, "programs_ask_and_hooks_see_their_output")),
    ("13", "hooks: a script in the operation's place", Works(POLICIES, "a_script_is_the_network")),
    ("13", "hooks: post", Works(POLICY, "rego_hooks_rewrite_deny_and_abstain")),
];

#[test]
fn every_row_has_its_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a directory");
    let mut files: HashMap<&str, String> = HashMap::new();
    let mut counts = [0; 2];
    for (section, row, verdict) in SURFACE {
        let (kind, file, test) = match verdict {
            Works(file, test) => (0, file, test),
            Differs(reason, file, test) => {
                assert!(!reason.is_empty(), "{section} {row}");
                (1, file, test)
            }
        };
        counts[kind] += 1;
        let text = files
            .entry(file)
            .or_insert_with(|| std::fs::read_to_string(crates.join(file)).expect("tests"));
        assert!(text.contains(&format!("fn {test}(")), "{section} {row}: {test}");
    }
    println!("{} rows work, {} differ on purpose", counts[0], counts[1]);
}
