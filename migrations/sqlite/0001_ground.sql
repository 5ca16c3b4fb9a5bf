-- The ground floor: who owns what, and the messages, replies, states and timers of entities.
-- Times are milliseconds of Unix time. Rows carry slots, not shards: a shard is a range of slots.
-- Users' tables may share the file, so every name here begins with cleat_.

-- What is true of the database as a whole, such as the UID of the Cluster that it belongs to.
CREATE TABLE cleat_facts (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Who gives out ids of which machine number, and until which tick.
CREATE TABLE cleat_machines (
    machine  INTEGER PRIMARY KEY,
    instance TEXT    NOT NULL,
    until    INTEGER NOT NULL
) STRICT;

-- How each group's slots are cut into shards. Rows of other tables name groups by number.
CREATE TABLE cleat_groups (
    grp        INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    shards     INTEGER NOT NULL CHECK (shards BETWEEN 1 AND 65535),
    generation INTEGER NOT NULL
) STRICT;

-- The fences.
CREATE TABLE cleat_shards (
    grp        INTEGER NOT NULL REFERENCES cleat_groups,
    shard      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    epoch      INTEGER NOT NULL DEFAULT 0,
    instance   TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (grp, shard)
) STRICT, WITHOUT ROWID;

-- Open messages only: a finished one leaves for cleat_outcomes, so this table and its indexes stay small.
CREATE TABLE cleat_messages (
    id          INTEGER PRIMARY KEY,
    grp         INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    entity_type TEXT    NOT NULL,
    entity_id   TEXT    NOT NULL,
    method      TEXT    NOT NULL,
    payload     BLOB    NOT NULL,
    extra       BLOB,
    due         INTEGER,
    attempt     INTEGER NOT NULL DEFAULT 0,
    error       TEXT,
    key         BLOB
) STRICT;
CREATE INDEX cleat_messages_slot ON cleat_messages (grp, slot);

-- Finished messages with their replies.
CREATE TABLE cleat_outcomes (
    id          INTEGER PRIMARY KEY,
    grp         INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    entity_type TEXT    NOT NULL,
    entity_id   TEXT    NOT NULL,
    method      TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    reply       BLOB    NOT NULL,
    done        INTEGER NOT NULL
) STRICT;
-- Each class has its own retention, and so its own order in which things grow too old.
CREATE INDEX cleat_outcomes_completed ON cleat_outcomes (done) WHERE status = 0;
CREATE INDEX cleat_outcomes_failed ON cleat_outcomes (done) WHERE status <> 0;

-- Explicit idempotency keys; `body` is the payload's digest.
CREATE TABLE cleat_keys (
    key  BLOB    PRIMARY KEY,
    id   INTEGER NOT NULL,
    body BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX cleat_keys_id ON cleat_keys (id);

-- Parts of streamed replies, until they are acknowledged.
CREATE TABLE cleat_chunks (
    id       INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    items    BLOB    NOT NULL,
    PRIMARY KEY (id, sequence)
) STRICT;
CREATE TABLE cleat_streams (
    id    INTEGER PRIMARY KEY,
    acked INTEGER NOT NULL
) STRICT;

CREATE TABLE cleat_states (
    entity_type TEXT    NOT NULL,
    entity_id   TEXT    NOT NULL,
    grp         INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    value       BLOB    NOT NULL,
    PRIMARY KEY (entity_type, entity_id)
) STRICT;

CREATE TABLE cleat_timers (
    entity_type TEXT    NOT NULL,
    entity_id   TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    grp         INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    payload     BLOB    NOT NULL,
    PRIMARY KEY (entity_type, entity_id, name)
) STRICT;
CREATE INDEX cleat_timers_due ON cleat_timers (grp, slot, due);

CREATE TABLE cleat_dead_letters (
    id          INTEGER PRIMARY KEY,
    grp         INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    entity_type TEXT    NOT NULL,
    entity_id   TEXT    NOT NULL,
    method      TEXT    NOT NULL,
    payload     BLOB    NOT NULL,
    extra       BLOB,
    attempt     INTEGER NOT NULL,
    error       TEXT    NOT NULL,
    key         BLOB,
    died        INTEGER NOT NULL
) STRICT;
CREATE INDEX cleat_dead_letters_group ON cleat_dead_letters (grp, id);
CREATE INDEX cleat_dead_letters_died ON cleat_dead_letters (died);
