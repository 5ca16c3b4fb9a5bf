-- Every row can be found by group and slot. Rows of older binaries have none: they are found through their run or request, and leave with
-- their retention. Text is compared byte by byte by default: BINARY.
ALTER TABLE cleat_journal ADD COLUMN grp INTEGER;
ALTER TABLE cleat_journal ADD COLUMN slot INTEGER;
ALTER TABLE cleat_keys ADD COLUMN grp INTEGER;
ALTER TABLE cleat_keys ADD COLUMN slot INTEGER;
ALTER TABLE cleat_chunks ADD COLUMN grp INTEGER;
ALTER TABLE cleat_chunks ADD COLUMN slot INTEGER;
ALTER TABLE cleat_streams ADD COLUMN grp INTEGER;
ALTER TABLE cleat_streams ADD COLUMN slot INTEGER;
ALTER TABLE cleat_former_runs ADD COLUMN grp INTEGER;
ALTER TABLE cleat_former_runs ADD COLUMN slot INTEGER;
-- Not cleat_forgotten_runs: older binaries insert into it without naming its column. Its rows only say which journals are to be deleted.
ALTER TABLE cleat_holds ADD COLUMN grp INTEGER;
ALTER TABLE cleat_holds ADD COLUMN slot INTEGER;
