-- One entry of a journal, as the last statement of a user's transaction. COMMIT comes in the same message, so whatever keeps the entry
-- from being written is an error here: after one the server executes nothing more of that message.
CREATE FUNCTION cleat.enter(
    lock bigint, instance text, grp smallint, shard integer, generation integer, epoch bigint, run bigint, seq bigint, entry bytea)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Before the look at the fence, which sees what was committed until then.
    PERFORM pg_advisory_xact_lock_shared(lock);
    INSERT INTO cleat.journal (run, seq, epoch, entry)
        SELECT enter.run, enter.seq, enter.epoch, enter.entry FROM cleat.shards s
        WHERE s.grp = enter.grp AND s.shard = enter.shard AND s.epoch = enter.epoch
          AND s.generation = enter.generation AND s.instance = enter.instance
          AND current_setting('cleat.transaction', true) = 'open'
          AND (enter.seq = 0 OR EXISTS (SELECT 1 FROM cleat.journal j WHERE j.run = enter.run AND j.seq = enter.seq - 1))
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM cleat.abort();
    END IF;
END $$;
