//! Which changes of the schema are to be made, and whether this binary may use what is there.

use super::Error;

/// One numbered change of the schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    pub(super) version: i32,
    /// The oldest schema whose binaries still work after this change. A change that only expands keeps it; one that
    /// contracts raises it to the first release that no longer needs what goes away.
    pub(super) oldest: i32,
    pub(super) sql: &'static str,
}

/// A part of a migration that commits by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step<'a> {
    pub(super) sql: &'a str,
    /// The index that it builds beside readers and writers, outside of a transaction.
    pub(super) index: Option<&'a str>,
    /// Whether a database that is created in this schema does not need it.
    pub(super) upgrade: bool,
}

impl Migration {
    /// The steps, which lines `-- step` and `-- step for upgrades` separate.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step<'static>> + use<> {
        self.sql.split("\n-- step").map(|sql| {
            let (upgrade, sql) = match sql.strip_prefix(" for upgrades") {
                Some(sql) => (true, sql),
                None => (false, sql),
            };
            let index = sql.split_once("INDEX CONCURRENTLY ").and_then(|(_, rest)| rest.split(' ').next());
            Step { sql, index, upgrade }
        })
    }
}

/// How far the migration of a database has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationProgress {
    /// The schema that it leads to.
    pub version: i32,
    /// The step that is being done, from 1; 0 while another runner migrates.
    pub step: usize,
    /// How many steps it has.
    pub steps: usize,
}

impl std::fmt::Display for MigrationProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, step, steps } = self;
        if *step == 0 {
            return write!(f, "waiting for another runner, which migrates the database to schema {version}");
        }
        write!(f, "migrating the database to schema {version}: step {step} of {steps}")
    }
}

/// Whether a list leads to the schema that this binary is said to know.
pub(super) const fn leads_there(all: &[Migration]) -> bool {
    all[all.len() - 1].version == super::SCHEMA
}

/// What the database says of its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Schema {
    /// The last change that was made; 0 for an empty database.
    pub(super) version: i32,
    /// The oldest schema whose binaries may use it.
    pub(super) oldest: i32,
}

/// The changes that are still to be made, in order.
///
/// # Errors
/// [`Error::TooOld`] if the database has moved on so far that this binary would break something.
pub(super) fn pending(all: &'static [Migration], found: Schema) -> Result<&'static [Migration], Error> {
    let known = all.last().map_or(0, |last| last.version);
    if found.oldest > known {
        return Err(Error::TooOld { oldest: found.oldest, known });
    }
    let done = all.iter().take_while(|migration| migration.version <= found.version).count();
    Ok(&all[done..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Migration] = &[
        Migration { version: 1, oldest: 1, sql: "" },
        Migration { version: 2, oldest: 1, sql: "" },
        Migration { version: 3, oldest: 2, sql: "" },
    ];

    fn versions(found: Schema) -> Vec<i32> {
        pending(ALL, found).unwrap().iter().map(|migration| migration.version).collect()
    }

    #[test]
    fn only_what_is_missing_is_done() {
        assert_eq!(versions(Schema::default()), [1, 2, 3]);
        assert_eq!(versions(Schema { version: 2, oldest: 1 }), [3]);
        assert!(versions(Schema { version: 3, oldest: 2 }).is_empty());
    }

    #[test]
    fn a_file_is_split_into_steps_and_indexes_are_known_by_name() {
        let sql = "-- Why.\nALTER TABLE a;\nALTER TABLE b;\n-- step\nCREATE UNIQUE INDEX CONCURRENTLY a_key ON a (b);\n\
                   -- step for upgrades\n-- Because.\nANALYZE a;\n";
        let steps: Vec<_> = Migration { version: 1, oldest: 1, sql }.steps().collect();
        assert_eq!(steps.iter().map(|step| step.index).collect::<Vec<_>>(), [None, Some("a_key"), None]);
        assert_eq!(steps.iter().map(|step| step.upgrade).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(steps[0].sql, "-- Why.\nALTER TABLE a;\nALTER TABLE b;");
        assert_eq!(steps[2].sql.trim(), "-- Because.\nANALYZE a;");
    }

    #[test]
    fn a_newer_schema_that_only_expanded_is_left_alone() {
        assert!(versions(Schema { version: 5, oldest: 3 }).is_empty());
    }

    #[test]
    fn a_schema_that_dropped_what_this_binary_needs_is_refused_in_words() {
        let error = pending(ALL, Schema { version: 5, oldest: 4 }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the database needs a binary that knows schema 4 or later; this one knows 3: upgrade it"
        );
    }
}
