-- The ground floor: who owns what, and the messages, replies, states and timers of entities.
-- Times are milliseconds of Unix time. Rows carry slots, not shards: a shard is a range of slots.

CREATE SCHEMA IF NOT EXISTS cleat;

-- What is true of the database as a whole, such as the UID of the Cluster that it belongs to.
CREATE TABLE cleat.facts (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- Who gives out ids of which machine number, and until which tick.
CREATE TABLE cleat.machines (
    machine  smallint PRIMARY KEY,
    instance text     NOT NULL,
    until    bigint   NOT NULL
);

-- How each group's slots are cut into shards. Rows of other tables name groups by number.
CREATE TABLE cleat.groups (
    grp        smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text    NOT NULL UNIQUE,
    shards     integer NOT NULL CHECK (shards BETWEEN 1 AND 65535),
    generation integer NOT NULL
);

-- The fences. `unsettled` names earlier owners whose transactions nobody has waited out yet.
CREATE TABLE cleat.shards (
    grp        smallint NOT NULL REFERENCES cleat.groups,
    shard      integer  NOT NULL,
    generation integer  NOT NULL,
    epoch      bigint   NOT NULL DEFAULT 0,
    instance   text     NOT NULL DEFAULT '',
    unsettled  text[]   NOT NULL DEFAULT '{}',
    PRIMARY KEY (grp, shard)
) WITH (fillfactor = 50);

-- Open messages only: a finished one leaves for cleat.outcomes, so this table and its indexes stay small.
CREATE TABLE cleat.messages (
    id          bigint   PRIMARY KEY,
    grp         smallint NOT NULL,
    slot        integer  NOT NULL,
    seq         bigint   NOT NULL,
    entity_type text     NOT NULL,
    entity_id   text     NOT NULL,
    method      text     NOT NULL,
    payload     bytea    NOT NULL,
    extra       bytea,
    due         bigint,
    attempt     integer  NOT NULL DEFAULT 0,
    error       text,
    key         bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX messages_slot ON cleat.messages (grp, slot);

-- Finished messages with their replies. Ids are ordered by time, so ranges of ids are ranges of time.
CREATE TABLE cleat.outcomes (
    id          bigint   PRIMARY KEY,
    grp         smallint NOT NULL,
    slot        integer  NOT NULL,
    entity_type text     NOT NULL,
    entity_id   text     NOT NULL,
    method      text     NOT NULL,
    epoch       bigint   NOT NULL,
    status      smallint NOT NULL,
    reply       bytea    NOT NULL,
    done        bigint   NOT NULL
) PARTITION BY RANGE (id);
-- What outlives its time partition, and what is older than all of them.
CREATE TABLE cleat.outcomes_rest PARTITION OF cleat.outcomes DEFAULT;
CREATE INDEX outcomes_rest_done ON cleat.outcomes_rest (done);

-- Explicit idempotency keys; `body` is the payload's digest.
CREATE TABLE cleat.keys (
    key  bytea  PRIMARY KEY,
    id   bigint NOT NULL,
    body bytea  NOT NULL
);
CREATE INDEX keys_id ON cleat.keys (id);

-- Parts of streamed replies, until they are acknowledged.
CREATE TABLE cleat.chunks (
    id       bigint  NOT NULL,
    sequence integer NOT NULL,
    items    bytea   NOT NULL,
    PRIMARY KEY (id, sequence)
);
CREATE TABLE cleat.streams (
    id    bigint  PRIMARY KEY,
    acked integer NOT NULL
);

CREATE TABLE cleat.states (
    entity_type text     NOT NULL,
    entity_id   text     NOT NULL,
    grp         smallint NOT NULL,
    slot        integer  NOT NULL,
    version     bigint   NOT NULL,
    epoch       bigint   NOT NULL,
    value       bytea    NOT NULL,
    PRIMARY KEY (entity_type, entity_id)
) WITH (fillfactor = 80);

CREATE TABLE cleat.timers (
    entity_type text     NOT NULL,
    entity_id   text     NOT NULL,
    name        text     NOT NULL,
    grp         smallint NOT NULL,
    slot        integer  NOT NULL,
    due         bigint   NOT NULL,
    payload     bytea    NOT NULL,
    PRIMARY KEY (entity_type, entity_id, name)
);
CREATE INDEX timers_due ON cleat.timers (grp, slot, due);

CREATE TABLE cleat.dead_letters (
    id          bigint   PRIMARY KEY,
    grp         smallint NOT NULL,
    slot        integer  NOT NULL,
    seq         bigint   NOT NULL,
    entity_type text     NOT NULL,
    entity_id   text     NOT NULL,
    method      text     NOT NULL,
    payload     bytea    NOT NULL,
    extra       bytea,
    attempt     integer  NOT NULL,
    error       text     NOT NULL,
    key         bytea,
    died        bigint   NOT NULL
);

-- Which of the given fences stand, by their place in the arrays. It first takes the instance's lock, which a claim waits
-- out, and only then looks: in a volatile function each statement sees what was committed before it began. A few fences are
-- looked up one by one, which is faster than setting up a join; a crowd is joined.
CREATE FUNCTION cleat.fence(lock bigint, instance text, grps smallint[], shards integer[], generations integer[], epochs bigint[])
RETURNS boolean[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    stands boolean[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock);
    IF cardinality(epochs) > 4 THEN
        RETURN ARRAY(
            SELECT coalesce(s.epoch = f.epoch AND s.generation = f.generation AND s.instance = fence.instance, false)
            FROM unnest(grps, shards, generations, epochs) WITH ORDINALITY AS f (grp, shard, generation, epoch, n)
            LEFT JOIN cleat.shards s ON s.grp = f.grp AND s.shard = f.shard
            ORDER BY f.n);
    END IF;
    FOR n IN 1 .. cardinality(epochs) LOOP
        stands[n] := coalesce((
            SELECT s.epoch = epochs[n] AND s.generation = generations[n] AND s.instance = fence.instance
            FROM cleat.shards s WHERE s.grp = grps[n] AND s.shard = shards[n]), false);
    END LOOP;
    RETURN stands;
END $$;

-- The same for one fence: what a write that comes alone pays for.
CREATE FUNCTION cleat.stands(lock bigint, instance text, grp smallint, shard integer, generation integer, epoch bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock);
    RETURN EXISTS (
        SELECT 1 FROM cleat.shards s
        WHERE s.grp = stands.grp AND s.shard = stands.shard AND s.epoch = stands.epoch
          AND s.generation = stands.generation AND s.instance = stands.instance);
END $$;

-- Whether none of these requests has ended by now, rather than when the calling statement began.
CREATE FUNCTION cleat.unfinished(ids bigint[]) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT 1 FROM unnest(ids) AS u (id) WHERE (SELECT 1 FROM cleat.outcomes o WHERE o.id = u.id) IS NOT NULL);
END $$;

-- Takes a whole batch back when one of its rows did not find what it was built on.
CREATE FUNCTION cleat.abort() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a write did not find what it was built on' USING ERRCODE = 'CL001';
END $$;
