-- Every row can be found by group and slot, and text is compared byte by byte: COLLATE "C".
-- The order of any other collation may change with a library of the operating system, and an index in the old order admits duplicates.
--
-- Each step commits by itself, in order; an interrupted migration continues with the first step that is not recorded. Steps hold
-- ACCESS EXCLUSIVE only for changes of the catalog: no step rewrites a table, and indexes are built beside the old ones.

-- Rows of older binaries have no slot. They are found through their run or request, and leave with their retention.
ALTER TABLE cleat.journal ADD COLUMN grp smallint, ADD COLUMN slot integer;
-- step
ALTER TABLE cleat.keys ADD COLUMN grp smallint, ADD COLUMN slot integer;
-- step
ALTER TABLE cleat.chunks ADD COLUMN grp smallint, ADD COLUMN slot integer;
ALTER TABLE cleat.streams ADD COLUMN grp smallint, ADD COLUMN slot integer;
-- step
ALTER TABLE cleat.former_runs ADD COLUMN grp smallint, ADD COLUMN slot integer;
ALTER TABLE cleat.forgotten_runs ADD COLUMN grp smallint, ADD COLUMN slot integer;
ALTER TABLE cleat.holds ADD COLUMN grp smallint, ADD COLUMN slot integer;
-- step
-- As the function without `slot`, which older binaries call.
CREATE FUNCTION cleat.enter(
    lock bigint, instance text, grp smallint, shard integer, generation integer, epoch bigint, slot integer, run bigint, seq bigint,
    entry bytea)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Before the look at the fence, which sees what was committed until then.
    PERFORM pg_advisory_xact_lock_shared(lock);
    INSERT INTO cleat.journal (run, seq, epoch, entry, grp, slot)
        SELECT enter.run, enter.seq, enter.epoch, enter.entry, enter.grp, enter.slot FROM cleat.shards s
        WHERE s.grp = enter.grp AND s.shard = enter.shard AND s.epoch = enter.epoch
          AND s.generation = enter.generation AND s.instance = enter.instance
          AND current_setting('cleat.transaction', true) = 'open'
          AND (enter.seq = 0 OR EXISTS (SELECT 1 FROM cleat.journal j WHERE j.run = enter.run AND j.seq = enter.seq - 1))
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM cleat.abort();
    END IF;
END $$;
-- step
CREATE UNIQUE INDEX CONCURRENTLY states_key ON cleat.states (entity_type COLLATE "C", entity_id COLLATE "C");
-- step
CREATE UNIQUE INDEX CONCURRENTLY timers_key ON cleat.timers (entity_type COLLATE "C", entity_id COLLATE "C", name COLLATE "C");
-- step
CREATE UNIQUE INDEX CONCURRENTLY executions_key ON cleat.executions (entity_type COLLATE "C", entity_id COLLATE "C");
-- step
CREATE INDEX CONCURRENTLY executions_started_c ON cleat.executions (grp, entity_type COLLATE "C", started, entity_id COLLATE "C");
-- step
CREATE UNIQUE INDEX CONCURRENTLY former_runs_key ON cleat.former_runs (entity_type COLLATE "C", entity_id COLLATE "C", run);
-- step
CREATE UNIQUE INDEX CONCURRENTLY holds_key ON cleat.holds (entity_type COLLATE "C", entity_id COLLATE "C", holder COLLATE "C");
-- step
-- The new index is in the order of the new column, so it is kept as it is and takes the place of the old one.
ALTER TABLE cleat.states DROP CONSTRAINT states_pkey;
ALTER TABLE cleat.states ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C";
ALTER TABLE cleat.states ADD CONSTRAINT states_pkey PRIMARY KEY USING INDEX states_key;
-- step
ALTER TABLE cleat.timers DROP CONSTRAINT timers_pkey;
ALTER TABLE cleat.timers ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C",
    ALTER COLUMN name TYPE text COLLATE "C";
ALTER TABLE cleat.timers ADD CONSTRAINT timers_pkey PRIMARY KEY USING INDEX timers_key;
-- step
ALTER TABLE cleat.executions DROP CONSTRAINT executions_pkey;
DROP INDEX cleat.executions_started;
ALTER TABLE cleat.executions ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C";
ALTER TABLE cleat.executions ADD CONSTRAINT executions_pkey PRIMARY KEY USING INDEX executions_key;
ALTER INDEX cleat.executions_started_c RENAME TO executions_started;
-- step
ALTER TABLE cleat.former_runs DROP CONSTRAINT former_runs_pkey;
ALTER TABLE cleat.former_runs ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C";
ALTER TABLE cleat.former_runs ADD CONSTRAINT former_runs_pkey PRIMARY KEY USING INDEX former_runs_key;
-- step
ALTER TABLE cleat.holds DROP CONSTRAINT holds_pkey;
ALTER TABLE cleat.holds ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C",
    ALTER COLUMN holder TYPE text COLLATE "C";
ALTER TABLE cleat.holds ADD CONSTRAINT holds_pkey PRIMARY KEY USING INDEX holds_key;
-- step
-- Text that no index is over, and small tables.
ALTER TABLE cleat.messages ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C",
    ALTER COLUMN method TYPE text COLLATE "C", ALTER COLUMN error TYPE text COLLATE "C";
-- step
ALTER TABLE cleat.outcomes ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C",
    ALTER COLUMN method TYPE text COLLATE "C";
-- step
ALTER TABLE cleat.dead_letters ALTER COLUMN entity_type TYPE text COLLATE "C", ALTER COLUMN entity_id TYPE text COLLATE "C",
    ALTER COLUMN method TYPE text COLLATE "C", ALTER COLUMN error TYPE text COLLATE "C";
-- step
ALTER TABLE cleat.shards ALTER COLUMN instance TYPE text COLLATE "C", ALTER COLUMN unsettled TYPE text[] COLLATE "C";
-- step
ALTER TABLE cleat.facts ALTER COLUMN name TYPE text COLLATE "C", ALTER COLUMN value TYPE text COLLATE "C";
ALTER TABLE cleat.groups ALTER COLUMN name TYPE text COLLATE "C";
ALTER TABLE cleat.machines ALTER COLUMN instance TYPE text COLLATE "C";
-- step for upgrades
-- A changed collation takes the column's statistics away.
ANALYZE cleat.states, cleat.timers, cleat.executions, cleat.former_runs, cleat.holds, cleat.messages;
-- step for upgrades
-- A prepared statement that returns text fails after its collation has changed, until it is prepared again. Runners that were there before
-- have such statements on the connections that they read with: those are closed, and reads are repeated on new ones.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid() AND application_name LIKE 'cleat % pool';
