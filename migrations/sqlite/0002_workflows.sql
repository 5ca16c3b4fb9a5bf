-- Executions of workflows, and what happened in each of their runs.

CREATE TABLE cleat_executions (
    entity_type TEXT    NOT NULL,
    entity_id   TEXT    NOT NULL,
    grp         INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    run         INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    phase       INTEGER NOT NULL,
    active      INTEGER NOT NULL,
    started     INTEGER NOT NULL,
    ended       INTEGER,
    input       BLOB    NOT NULL,
    summary     BLOB    NOT NULL,
    PRIMARY KEY (entity_type, entity_id)
) STRICT;
-- What an owner has to resume.
CREATE INDEX cleat_executions_active ON cleat_executions (grp, slot) WHERE active;
-- Newest first.
CREATE INDEX cleat_executions_started ON cleat_executions (grp, entity_type, started, entity_id);
-- What grows too old.
CREATE INDEX cleat_executions_ended ON cleat_executions (ended) WHERE ended IS NOT NULL;

-- What happened in a run, entry by entry, without gaps. `epoch` is its writer's.
CREATE TABLE cleat_journal (
    run   INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    entry BLOB    NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- Runs that an execution had before its present one.
CREATE TABLE cleat_former_runs (
    entity_type TEXT    NOT NULL,
    entity_id   TEXT    NOT NULL,
    run         INTEGER NOT NULL,
    PRIMARY KEY (entity_type, entity_id, run)
) STRICT, WITHOUT ROWID;

-- Runs of forgotten executions whose journals are still to be deleted, which is done bit by bit.
CREATE TABLE cleat_forgotten_runs (
    run INTEGER PRIMARY KEY
) STRICT;
