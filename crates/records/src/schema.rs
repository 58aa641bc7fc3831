//! The tables, and how an older store becomes a current one.

use crate::error::{Error, Result};
use rusqlite::Connection;

/// Steps from an empty file to the current form; the form is their number. Steps are never
/// changed once released, only added to.
const STEPS: &[&str] = &[
    "
CREATE TABLE machines (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    template TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    tags TEXT NOT NULL,
    limits TEXT NOT NULL,
    env TEXT NOT NULL,
    durability TEXT NOT NULL,
    network TEXT NOT NULL,
    next_seq INTEGER NOT NULL DEFAULT 0,
    start_image TEXT NOT NULL,
    head_image TEXT NOT NULL,
    head_seq INTEGER,
    parent TEXT
) STRICT;
CREATE INDEX machines_account ON machines (account, id DESC);

CREATE TABLE instructions (
    machine INTEGER NOT NULL REFERENCES machines ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    code TEXT NOT NULL,
    exec TEXT NOT NULL,
    key TEXT,
    status TEXT NOT NULL,
    queued_ms INTEGER NOT NULL,
    started_ms INTEGER,
    finished_ms INTEGER,
    outputs INTEGER NOT NULL DEFAULT 0,
    rolled_back INTEGER NOT NULL DEFAULT 0,
    outcome TEXT,
    receipt TEXT,
    PRIMARY KEY (machine, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX instructions_key ON instructions (machine, key) WHERE key IS NOT NULL;
CREATE INDEX instructions_pending ON instructions (status) WHERE status IN ('queued', 'running');

-- one row per batch of lines, as JSON, so that much output costs few rows
CREATE TABLE outputs (
    machine INTEGER NOT NULL REFERENCES machines ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    first INTEGER NOT NULL,
    chunks TEXT NOT NULL,
    PRIMARY KEY (machine, seq, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
    machine INTEGER NOT NULL REFERENCES machines ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    image TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    label TEXT,
    PRIMARY KEY (machine, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE templates (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    image TEXT NOT NULL,
    template TEXT NOT NULL
) STRICT;
CREATE INDEX templates_name ON templates (name, created_ms DESC);
",
    "
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    secret TEXT NOT NULL,
    name TEXT,
    account TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
",
    "
CREATE TABLE artifacts (
    machine INTEGER NOT NULL REFERENCES machines ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    place INTEGER NOT NULL,
    id TEXT NOT NULL,
    artifact TEXT NOT NULL,
    PRIMARY KEY (machine, seq, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX artifacts_id ON artifacts (id);

-- a bounded log; numbers are never used twice
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    event TEXT NOT NULL
) STRICT;
",
    // names can be exchanged, so lineage uses numbers; the changes of a checkpoint are computed on
    // request, and cached
    "
ALTER TABLE machines ADD COLUMN parent_id INTEGER;
ALTER TABLE machines ADD COLUMN reseed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE machines ADD COLUMN retention TEXT;
ALTER TABLE machines ADD COLUMN freed_seq INTEGER;
UPDATE machines SET parent_id = (SELECT id FROM machines AS source
    WHERE source.name = json_extract(machines.parent, '$.machine') AND source.id < machines.id);
CREATE INDEX machines_parent ON machines (parent_id) WHERE parent_id IS NOT NULL;
ALTER TABLE checkpoints ADD COLUMN changes TEXT;
",
    "
-- in batches, so that much that happens costs few rows
DROP TABLE events;
CREATE TABLE events (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    batch TEXT NOT NULL
) STRICT;
",
    NUMBERS_ONCE,
    NAMES_PER_ACCOUNT,
    OWN_STATES,
    DOCUMENTS,
    UNSAVED_STARTS,
    POLICIES,
    LINEAGE,
    TOOL_CALLS,
];

/// No number is given to a second machine, also after the newest was removed, and a branch has a
/// larger number than its parent, so no line of parents leads back to its beginning. Links that
/// older stores got wrong are cut. Names are unique by an index of their own, which a later step
/// can replace.
const NUMBERS_ONCE: &str = "
CREATE TABLE machines_numbered_once (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    account TEXT NOT NULL,
    template TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    tags TEXT NOT NULL,
    limits TEXT NOT NULL,
    env TEXT NOT NULL,
    durability TEXT NOT NULL,
    network TEXT NOT NULL,
    next_seq INTEGER NOT NULL DEFAULT 0,
    start_image TEXT NOT NULL,
    head_image TEXT NOT NULL,
    head_seq INTEGER,
    parent TEXT,
    parent_id INTEGER CHECK (parent_id < id),
    reseed INTEGER NOT NULL DEFAULT 0,
    retention TEXT,
    freed_seq INTEGER
) STRICT;
INSERT INTO machines_numbered_once
    SELECT id, name, account, template, created_ms, expires_ms, tags, limits, env, durability,
           network, next_seq, start_image, head_image, head_seq, parent,
           CASE WHEN parent_id < id THEN parent_id END, reseed, retention, freed_seq
    FROM machines;
DROP TABLE machines;
ALTER TABLE machines_numbered_once RENAME TO machines;
CREATE UNIQUE INDEX machines_name ON machines (name);
CREATE INDEX machines_account ON machines (account, id DESC);
CREATE INDEX machines_parent ON machines (parent_id) WHERE parent_id IS NOT NULL;
";

/// Each account has its own names: a name that one account uses is free for every other.
const NAMES_PER_ACCOUNT: &str = "
DROP INDEX machines_name;
CREATE UNIQUE INDEX machines_name ON machines (account, name);
";

/// Machines say which instructions have a state of their own.
const OWN_STATES: &str = "
ALTER TABLE machines ADD COLUMN checkpoints TEXT NOT NULL DEFAULT '\"exact\"';
";

/// Documents that surfaces keep for an account.
const DOCUMENTS: &str = "
CREATE TABLE documents (
    account TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (account, kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX documents_kind ON documents (kind);
";

/// A branch can be created before its first state is on disk. Until then it is recorded with an
/// older state of its source, which this column names.
const UNSAVED_STARTS: &str = "
ALTER TABLE machines ADD COLUMN unsaved_start TEXT;
";

/// Policies have names, which machines have as their network.
const POLICIES: &str = "
CREATE TABLE policies (
    name TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    changed_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// The first machine of a line, which placeholders of secrets and certificates belong to: it may
/// be removed before its branches are.
const LINEAGE: &str = "
ALTER TABLE machines ADD COLUMN lineage INTEGER;
";

/// Calls of tools, and machines whose instruction waits for the answer to one. The image of such a
/// machine is no checkpoint: nothing but the waiting instruction continues from it.
const TOOL_CALLS: &str = "
CREATE TABLE tool_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    machine INTEGER NOT NULL REFERENCES machines ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    request INTEGER NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    state TEXT NOT NULL,
    verdict TEXT NOT NULL,
    reason TEXT NOT NULL,
    called_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    answered_ms INTEGER,
    answered_by TEXT,
    note TEXT,
    finished_ms INTEGER,
    error TEXT
) STRICT;
CREATE INDEX tool_calls_machine ON tool_calls (machine, id DESC);
CREATE INDEX tool_calls_open ON tool_calls (state) WHERE finished_ms IS NULL;
CREATE INDEX tool_calls_asked ON tool_calls (id DESC) WHERE verdict = '\"ask\"';

CREATE TABLE parked (
    machine INTEGER PRIMARY KEY REFERENCES machines ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    call INTEGER NOT NULL,
    image TEXT NOT NULL,
    progress TEXT NOT NULL
) STRICT;
";

/// Sets a connection up that only reads.
pub fn prepare_reader(connection: &Connection) -> Result<()> {
    connection.execute_batch("PRAGMA busy_timeout = 5000; PRAGMA temp_store = MEMORY;")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Sets a connection up and brings its file to the current form.
pub fn prepare(connection: &mut Connection) -> Result<()> {
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;
         PRAGMA busy_timeout = 5000; PRAGMA wal_autocheckpoint = 4000;
         PRAGMA temp_store = MEMORY;",
    )?;
    connection.set_prepared_statement_cache_capacity(64);
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let known = STEPS.len() as i64;
    if found > known {
        return Err(Error::Newer { found, known });
    }
    // rewriting a table drops it meanwhile, which must not remove the rows that refer to it
    connection.execute_batch("PRAGMA foreign_keys = OFF")?;
    for (index, step) in STEPS.iter().enumerate().skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", index as i64 + 1)?;
        transaction.commit()?;
    }
    connection.execute_batch("PRAGMA foreign_keys = ON")?;
    Ok(())
}
