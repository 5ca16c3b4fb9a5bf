-- Who still shows an execution, which is not forgotten for so long, and an index to count those that have not ended.

-- An execution may be held before it begins, so that there is no moment at which it is not. What a holder is called is its own affair.
CREATE TABLE cleat.holds (
    entity_type text NOT NULL,
    entity_id   text NOT NULL,
    holder      text NOT NULL,
    PRIMARY KEY (entity_type, entity_id, holder)
);

-- Ending an execution writes to an index as it is, so this costs one entry for each that begins.
CREATE INDEX executions_open ON cleat.executions (grp, slot, phase) WHERE ended IS NULL;
