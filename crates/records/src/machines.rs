//! Records of machines.

use crate::Records;
use crate::error::{Error, Result};
use crate::held::HeldImage;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stasis_api::{Checkpoints, Durability, Limits, Name, Network, Parent, Retention, Timestamp};
use stasis_image::ImageId;
use std::collections::BTreeMap;

/// A machine's number in the store; names can be reused, numbers never. Names belong to accounts:
/// two accounts may each have a machine of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineId(pub i64);

/// The initial data of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRecord {
    pub name: Name,
    pub account: String,
    /// The template's digest.
    pub template: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub tags: BTreeMap<String, String>,
    pub limits: Limits,
    pub env: BTreeMap<String, String>,
    pub durability: Durability,
    pub checkpoints: Checkpoints,
    pub network: Network,
    pub parent: Option<Parent>,
    /// The machine it is a branch of, under its current name.
    pub parent_id: Option<MachineId>,
    /// Whether its first start seeds the program's generators anew.
    pub reseed: bool,
    /// Which checkpoints are kept; the host's rule, if absent.
    pub retention: Option<Retention>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MachineRecord {
    pub id: MachineId,
    pub made: NewRecord,
    pub next_seq: u64,
    /// The image it started from.
    pub start_image: ImageId,
    /// The newest state on disk, and the instruction it is the state after.
    pub head_image: ImageId,
    pub head_seq: Option<u64>,
    /// The newest checkpoint that was freed.
    pub freed_seq: Option<u64>,
    /// Its first state is not on disk: its parent and its images are those of an older state of its
    /// source.
    pub lost_start: bool,
    /// The first machine of its line: itself, or the one that its parents lead back to.
    pub lineage: MachineId,
}

const COLUMNS: &str = "id, name, account, template, created_ms, expires_ms, tags, limits, env, \
                       durability, network, next_seq, head_image, head_seq, parent, start_image, \
                       parent_id, reseed, retention, freed_seq, checkpoints, unsaved_start, \
                       lineage";

impl Records {
    /// Adds a machine that starts from `image`.
    pub fn create(&self, new: NewRecord, image: &dyn HeldImage) -> Result<MachineRecord> {
        let image = image.id();
        self.write(move |connection| add(connection, new, image))
    }

    /// Adds machines that start from `image`, all or none: a name that is taken, or a parent that
    /// was removed, leaves nothing behind.
    pub fn branch(&self, all: Vec<NewRecord>, image: &dyn HeldImage) -> Result<Vec<MachineRecord>> {
        let image = image.id();
        self.write(move |connection| {
            all.into_iter().map(|new| add(connection, new, image)).collect()
        })
    }

    /// Adds a machine that starts from a state which is not on disk yet. Until `start_saved`, its
    /// record names `image`, which is the state `older` of its source.
    pub fn branch_unsaved(
        &self,
        new: NewRecord,
        older: Parent,
        image: &dyn HeldImage,
    ) -> Result<MachineRecord> {
        let image = image.id();
        self.write(move |connection| {
            let record = add(connection, new, image)?;
            let sql = "UPDATE machines SET unsaved_start = ?2 WHERE id = ?1";
            connection.prepare_cached(sql)?.execute(params![record.id.0, text(&older)?])?;
            Ok(record)
        })
    }

    /// The first state of a machine is on disk by now. When this returns, that survives the end of
    /// the host.
    pub fn start_saved(&self, id: MachineId, image: &dyn HeldImage) -> Result<()> {
        let image = image.id().to_string();
        self.write_synced(move |connection| {
            let sql = "UPDATE machines SET start_image = ?2, head_image = ?2, \
                       unsaved_start = NULL WHERE id = ?1 AND unsaved_start IS NOT NULL";
            there(id, connection.prepare_cached(sql)?.execute(params![id.0, image])?)
        })
    }

    pub fn machines(&self) -> Result<Vec<MachineRecord>> {
        self.read(|connection| {
            let sql = format!("SELECT {COLUMNS} FROM machines ORDER BY id");
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_and_then([], read)?;
            rows.collect()
        })
    }

    pub fn machine(&self, id: MachineId) -> Result<MachineRecord> {
        self.read(|connection| one(connection, id))
    }

    pub fn machine_name(&self, id: MachineId) -> Result<Option<Name>> {
        self.read(|connection| {
            let sql = "SELECT name FROM machines WHERE id = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement.query_row([id.0], |row| row.get::<_, String>(0)).optional()?;
            Ok(found.and_then(|name| name.parse().ok()))
        })
    }

    /// Updates a machine's settings.
    pub fn update(&self, id: MachineId, new: NewRecord) -> Result<()> {
        self.write(move |connection| {
            let sql = "UPDATE machines SET tags = ?2, limits = ?3, durability = ?4, \
                       expires_ms = ?5, retention = ?6, network = ?7, checkpoints = ?8 \
                       WHERE id = ?1";
            let changed = connection.prepare_cached(sql)?.execute(params![
                id.0,
                text(&new.tags)?,
                text(&new.limits)?,
                text(&new.durability)?,
                new.expires_at.map(Timestamp::as_millisecond),
                new.retention.as_ref().map(text).transpose()?,
                text(&new.network)?,
                text(&new.checkpoints)?,
            ])?;
            there(id, changed)
        })
    }

    /// Two machines exchange names, or neither does.
    pub fn promote(&self, branch: MachineId, onto: MachineId) -> Result<()> {
        self.write_synced(move |connection| {
            let (taken, given) = (one(connection, onto)?, one(connection, branch)?);
            let mut rename =
                connection.prepare_cached("UPDATE machines SET name = ?2 WHERE id = ?1")?;
            // names are unique at every step, and no machine is ever called so
            rename.execute(params![branch.0, "@"])?;
            rename.execute(params![onto.0, given.made.name.as_str()])?;
            rename.execute(params![branch.0, taken.made.name.as_str()])?;
            Ok(())
        })
    }

    /// Bytes that an account's checkpoints and artifacts added to the store.
    pub fn disk_of(&self, account: &str) -> Result<u64> {
        let sql = "SELECT (SELECT coalesce(sum(checkpoints.bytes), 0) FROM checkpoints \
                   JOIN machines ON machines.id = checkpoints.machine WHERE account = ?1) + \
                   (SELECT coalesce(sum(artifacts.artifact ->> 'size'), 0) FROM artifacts \
                   JOIN machines ON machines.id = artifacts.machine WHERE account = ?1)";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let bytes: i64 = statement.query_row([account], |row| row.get(0))?;
            Ok(bytes.max(0) as u64)
        })
    }

    /// With its instructions, output and checkpoints. Nothing is written for it afterwards.
    pub fn delete(&self, id: MachineId) -> Result<()> {
        self.write_synced(move |connection| remove(connection, id))
    }

    /// The same, without waiting for the disk. After the end of the host the machine may be there
    /// again.
    pub fn delete_unsynced(&self, id: MachineId) -> Result<()> {
        self.write(move |connection| remove(connection, id))
    }
}

fn remove(connection: &Connection, id: MachineId) -> Result<()> {
    let mut statement = connection.prepare_cached("DELETE FROM machines WHERE id = ?1")?;
    there(id, statement.execute([id.0])?)
}

/// Whether a machine was there to be written: `changed` is how many rows were.
pub(crate) fn there(id: MachineId, changed: usize) -> Result<()> {
    if changed == 0 { Err(Error::Removed(id.0)) } else { Ok(()) }
}

/// Refuses a change of a machine that does not exist.
pub(crate) fn require(connection: &Connection, id: MachineId) -> Result<()> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM machines WHERE id = ?1")?;
    there(id, usize::from(statement.exists([id.0])?))
}

fn require_template(connection: &Connection, digest: &str) -> Result<()> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM templates WHERE digest = ?1")?;
    let missing = || Error::NoTemplate(digest.to_owned());
    if statement.exists([digest])? { Ok(()) } else { Err(missing()) }
}

fn add(connection: &Connection, new: NewRecord, image: ImageId) -> Result<MachineRecord> {
    let id = insert(connection, &new, image)?;
    let sql = "SELECT coalesce(lineage, id) FROM machines WHERE id = ?1";
    let lineage = connection.prepare_cached(sql)?.query_row([id.0], |row| row.get(0))?;
    Ok(MachineRecord {
        id,
        made: new,
        next_seq: 0,
        start_image: image,
        head_image: image,
        head_seq: None,
        freed_seq: None,
        lost_start: false,
        lineage: MachineId(lineage),
    })
}

pub(crate) fn insert(
    connection: &Connection,
    new: &NewRecord,
    image: ImageId,
) -> Result<MachineId> {
    match new.parent_id {
        // which also keeps the template
        Some(parent) => require(connection, parent)?,
        None => require_template(connection, &new.template)?,
    }
    let sql = "INSERT INTO machines (name, account, template, created_ms, expires_ms, tags, \
               limits, env, durability, network, start_image, head_image, parent, parent_id, \
               reseed, retention, checkpoints, lineage) VALUES \
               (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12, ?13, ?14, ?15, ?16, \
                (SELECT coalesce(lineage, id) FROM machines WHERE id = ?13))";
    let added = connection.prepare_cached(sql)?.execute(params![
        new.name.as_str(),
        new.account,
        new.template,
        new.created_at.as_millisecond(),
        new.expires_at.map(Timestamp::as_millisecond),
        text(&new.tags)?,
        text(&new.limits)?,
        text(&new.env)?,
        text(&new.durability)?,
        text(&new.network)?,
        image.to_string(),
        new.parent.as_ref().map(text).transpose()?,
        new.parent_id.map(|id| id.0),
        new.reseed,
        new.retention.as_ref().map(text).transpose()?,
        text(&new.checkpoints)?,
    ]);
    match added {
        Err(error) if is_taken(&error) => Err(Error::NameTaken(new.name.to_string())),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(MachineId(connection.last_insert_rowid())),
    }
}

fn one(connection: &Connection, id: MachineId) -> Result<MachineRecord> {
    let sql = format!("SELECT {COLUMNS} FROM machines WHERE id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query_and_then([id.0], read)?;
    rows.next().unwrap_or(Err(Error::Removed(id.0)))
}

fn read(row: &Row<'_>) -> Result<MachineRecord> {
    let name: String = row.get(1)?;
    let unsaved_start: Option<String> = row.get(21)?;
    let lost_start = unsaved_start.is_some();
    let parent: Option<String> =
        unsaved_start.map_or_else(|| row.get(14), |older| Ok(Some(older)))?;
    let made = NewRecord {
        name: name.parse().map_err(|_| Error::Missing(format!("a machine called {name:?}")))?,
        account: row.get(2)?,
        template: row.get(3)?,
        created_at: time(row.get(4)?),
        expires_at: row.get::<_, Option<i64>>(5)?.map(time),
        tags: value(row, 6)?,
        limits: value(row, 7)?,
        env: value(row, 8)?,
        durability: value(row, 9)?,
        checkpoints: value(row, 20)?,
        network: value(row, 10)?,
        parent: parent.as_deref().map(serde_json::from_str).transpose()?,
        parent_id: row.get::<_, Option<i64>>(16)?.map(MachineId),
        reseed: row.get(17)?,
        retention: maybe(row, 18)?,
    };
    let id = MachineId(row.get(0)?);
    Ok(MachineRecord {
        id,
        made,
        next_seq: row.get::<_, i64>(11)? as u64,
        start_image: image(row, 15)?,
        head_image: image(row, 12)?,
        head_seq: row.get::<_, Option<i64>>(13)?.map(|seq| seq as u64),
        freed_seq: row.get::<_, Option<i64>>(19)?.map(|seq| seq as u64),
        lost_start,
        lineage: row.get::<_, Option<i64>>(22)?.map_or(id, MachineId),
    })
}

fn is_taken(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}

pub(crate) fn text<T: Serialize>(value: &T) -> Result<String> {
    Ok(serde_json::to_string(value)?)
}

pub(crate) fn value<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T> {
    Ok(serde_json::from_str(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)?)
}

pub(crate) fn maybe<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.as_deref().map(serde_json::from_str).transpose()?)
}

/// An image by its name.
pub(crate) fn image(row: &Row<'_>, column: usize) -> Result<ImageId> {
    let name = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    name.parse().map_err(|_| Error::Missing(format!("an image called {name:?}")))
}

pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Converts the result of `optional` to our type.
pub(crate) fn optional<T>(found: rusqlite::Result<Result<T>>) -> Result<Option<T>> {
    found.optional()?.transpose()
}
