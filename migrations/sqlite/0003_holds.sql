-- Who still shows an execution, which is not forgotten for so long, and an index to count those that have not ended.

-- An execution may be held before it begins, so that there is no moment at which it is not. What a holder is called is its own affair.
CREATE TABLE cleat_holds (
    entity_type TEXT NOT NULL,
    entity_id   TEXT NOT NULL,
    holder      TEXT NOT NULL,
    PRIMARY KEY (entity_type, entity_id, holder)
) STRICT, WITHOUT ROWID;

CREATE INDEX cleat_executions_open ON cleat_executions (grp, slot, phase) WHERE ended IS NULL;
