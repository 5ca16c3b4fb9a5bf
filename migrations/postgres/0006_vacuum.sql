-- Settings for tables whose rows are updated or deleted soon after they were written. None of these statements blocks readers or writers.

-- Room in each page for updates that touch no index (HOT): new attempts of messages, acknowledgements of streams, states of entities.
ALTER TABLE cleat.messages SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
ALTER TABLE cleat.states SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE cleat.executions SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE cleat.timers SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE cleat.streams SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE cleat.shards SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
-- Retention deletes the oldest part of these: small steps keep the space in use. Rows that are only inserted are frozen on the way.
ALTER TABLE cleat.journal SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
ALTER TABLE cleat.keys SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE cleat.chunks SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE cleat.forgotten_runs SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);
