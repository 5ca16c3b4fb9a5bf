//! What others of this kind get wrong, shown to be right here.
//!
//! Each line is a defect that was proven elsewhere, and the tests that show the opposite. Those without a path are in this file.
//!
//! | defect | shown by |
//! | --- | --- |
//! | ids collide, and the second call never runs | `calls_of_several_runners_never_share_an_id`, `store_postgres_upkeep.rs`: `many_stores_open_an_empty_database_at_the_same_time_and_get_distinct_machines`, `entity/sending.rs`: `a_key_with_another_input_is_refused` |
//! | a shard that comes back rejects its entities | `a_shard_that_comes_back_serves_its_entities_again`, `ownership/moves.rs`: `a_shard_that_left_a_runner_empty_and_comes_back_is_served_again` |
//! | no fencing: two processes commit the same | `a_runner_that_lost_a_shard_commits_nothing`, `store_postgres_fencing.rs`, `fault/pauses.rs` |
//! | runs entities without owning them after a death | `fault/deaths.rs`, by the checker's rule that nobody writes in an epoch that another claimed |
//! | shards are closed one after the other | `shards_with_handlers_that_do_not_end_are_closed_side_by_side`, `ownership/moves.rs`: `a_host_that_does_not_finish_cannot_hold_a_shutdown_up` |
//! | `concurrency = n` has no effect | `entity/order.rs`: `with_a_higher_concurrency_so_many_are_handled_at_once` |
//! | callers hang although the work was done | `of_many_callers_with_one_key_none_hangs`, `entity/stored.rs`: `whoever_asks_again_while_it_is_open_waits_for_the_reply` |
//! | a backlog larger than the inbox stalls; so does recovery | `a_backlog_much_larger_than_the_mailbox_is_worked_off_at_once`, `fault/deaths.rs`: `one_runner_that_comes_back_after_all_were_killed_goes_on_with_everything` |
//! | callers that go away break the connection for others | `transport/calls.rs`: `ten_thousand_callers_that_go_away_disturb_nobody_else` |
//! | the loss of a lock is the end; a stopped peer stalls the others | `ownership/outages.rs`: `a_lock_that_was_deleted_is_taken_again_and_costs_no_shard`, `fault/outages.rs`, `fault/pauses.rs` |
//! | chunks are dropped; nothing is ever deleted | `transport/streams.rs`: `a_stream_goes_no_further_than_its_window_until_it_is_acknowledged`, `store_postgres_upkeep.rs`: `retention_drops_days_and_moves_what_must_be_kept_beside_writers_and_other_rounds` |
//! | a failure stays under its key for ever | `a_request_that_failed_is_told_as_such_to_whoever_asks_again` |
//! | a poison panic blocks its entity | `a_message_that_always_panics_is_put_aside_and_the_next_one_is_handled` |
//! | errors are strings, nobody has to prove who they are | `errors_are_told_apart_by_type_and_reason`, `transport/admission.rs`: `a_wrong_credential_is_refused_with_its_reason` |
//! | test tables in product migrations | `the_schema_has_nothing_for_tests` |
//!
//! Found by ourselves: `a_message_that_ends_while_open_work_is_read_is_not_run_again`,
//! `of_a_request_that_is_stored_nobody_says_that_it_was_not_run`, `shards_that_could_not_be_opened_are_not_served_by_halves`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "defects/calls.rs"]
mod calls;
#[path = "defects/moves.rs"]
mod moves;
#[path = "defects/schema.rs"]
mod schema;
#[path = "defects/trouble.rs"]
mod trouble;
#[path = "entity/world.rs"]
mod world;
