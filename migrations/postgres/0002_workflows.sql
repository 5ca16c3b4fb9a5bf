-- Executions of workflows, and what happened in each of their runs.

-- One row for each execution. What the two indexes for reading are over changes rarely, so most updates touch no index.
CREATE TABLE cleat.executions (
    entity_type text     NOT NULL,
    entity_id   text     NOT NULL,
    grp         smallint NOT NULL,
    slot        integer  NOT NULL,
    run         bigint   NOT NULL,
    epoch       bigint   NOT NULL,
    phase       smallint NOT NULL,
    active      boolean  NOT NULL,
    started     bigint   NOT NULL,
    ended       bigint,
    input       bytea    NOT NULL,
    summary     bytea    NOT NULL,
    PRIMARY KEY (entity_type, entity_id)
) WITH (fillfactor = 70);
-- What an owner has to resume.
CREATE INDEX executions_active ON cleat.executions (grp, slot) WHERE active;
-- Newest first, by type. There are few types, so a listing of all of them goes through this index, too.
CREATE INDEX executions_started ON cleat.executions (grp, entity_type, started, entity_id);
-- What grows too old.
CREATE INDEX executions_ended ON cleat.executions (ended) WHERE ended IS NOT NULL;

-- What happened in a run, entry by entry, without gaps. `epoch` is its writer's.
CREATE TABLE cleat.journal (
    run   bigint NOT NULL,
    seq   bigint NOT NULL,
    epoch bigint NOT NULL,
    entry bytea  NOT NULL,
    PRIMARY KEY (run, seq)
);

-- Runs that an execution had before its present one.
CREATE TABLE cleat.former_runs (
    entity_type text   NOT NULL,
    entity_id   text   NOT NULL,
    run         bigint NOT NULL,
    PRIMARY KEY (entity_type, entity_id, run)
);

-- Runs of forgotten executions whose journals are still to be deleted, which is done bit by bit.
CREATE TABLE cleat.forgotten_runs (
    run bigint PRIMARY KEY
);
