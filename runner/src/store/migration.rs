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
