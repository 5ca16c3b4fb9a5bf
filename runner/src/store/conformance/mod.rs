//! What every store has to do, whatever database it has.
//!
//! An implementation shows how to make a [`Database`] and then says `store_conformance!(ThatDatabase);` in an integration
//! test: each case becomes a test on a database of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests, which other crates run")]

#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod dedupe;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod executions;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod journals;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod letters;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod life;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod messages;
mod model;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod ownership;
pub mod property;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod states;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod streams;
#[allow(missing_docs, reason = "the names of the cases say what they show")]
pub mod transactions;
mod world;

pub use world::{Database, Desk, Opening, World};

/// Makes a test of each case, for one kind of database.
#[macro_export]
macro_rules! store_conformance {
    ($database:ty) => {
        $crate::store_conformance! { @modules $database;
            ownership: [
                a_fresh_shard_is_unclaimed,
                a_claim_raises_the_epoch_and_names_its_instance,
                an_epoch_that_somebody_has_cannot_be_claimed_by_another,
                a_claim_that_is_repeated_by_the_same_instance_succeeds,
                a_claim_may_skip_epochs,
                nobody_can_claim_epoch_zero,
                of_two_stores_that_claim_one_epoch_exactly_one_wins,
                a_claim_answers_for_each_shard_by_itself,
                a_claim_of_nothing_is_no_trouble,
                shards_of_an_unknown_group_cannot_be_claimed,
                only_the_newest_fence_stands,
                the_fence_of_another_instance_does_not_stand,
                a_write_without_a_claim_is_fenced,
                after_a_claim_nothing_of_the_old_owner_is_written,
                losing_one_shard_fails_no_write_of_another,
                a_lost_shard_can_be_claimed_back,
                nothing_of_the_old_owner_commits_once_a_claim_has_returned,
                a_group_keeps_the_number_of_shards_that_it_was_made_with,
                three_instances_lease_three_machine_numbers,
                machine_numbers_that_are_leased_at_once_are_distinct,
                a_prolonged_lease_keeps_its_number_and_does_not_end_earlier,
                a_machine_number_that_somebody_else_has_is_replaced,
                leases_and_stamps_follow_the_databases_clock,
            ],
            messages: [
                an_accepted_message_comes_back_as_it_was,
                a_key_a_time_and_headers_come_back_as_they_were,
                an_empty_payload_is_not_nothing,
                a_payload_of_a_mebibyte_comes_back_as_it_was,
                any_text_can_be_an_address,
                the_longest_address_can_be_stored,
                a_nul_in_a_method_is_rejected_and_fails_nobody_else,
                a_nul_in_an_error_does_not_keep_it_from_being_noted,
                open_messages_come_in_the_order_in_which_they_were_accepted,
                open_messages_come_in_pages,
                a_message_is_open_in_the_shard_of_its_entity_only,
                a_message_is_not_shown_before_it_is_due,
                open_messages_of_an_unknown_group_cannot_be_read,
                what_was_never_stored_is_unknown,
                an_accepted_message_is_open_by_id_and_by_key,
                a_failed_attempt_is_noted_and_the_message_waits,
                an_attempt_on_a_request_that_is_not_open_is_refused,
                a_sent_message_is_open_for_any_entity_of_any_group,
                whoever_owns_one_shard_may_send_to_any_other,
                a_message_that_is_sent_again_is_left_as_it_is,
                a_key_that_is_sent_again_is_left_as_it_is,
                a_write_that_names_an_unknown_group_is_not_done,
                a_write_of_nothing_is_applied,
            ],
            dedupe: [
                an_id_that_is_open_is_a_duplicate_without_a_reply,
                an_id_of_another_request_is_rejected_and_never_gets_its_reply,
                an_id_that_has_ended_is_a_duplicate_with_its_reply,
                a_key_that_is_open_is_a_duplicate_of_its_first_request,
                a_key_that_has_ended_is_a_duplicate_with_the_first_reply,
                a_key_with_another_payload_is_refused,
                keys_of_different_entities_are_different,
                nothing_of_a_duplicate_is_done,
                a_stored_request_ends_with_its_reply,
                a_request_ends_once,
                a_request_that_was_never_stored_cannot_end,
                every_kind_of_end_comes_back_as_it_was,
                a_new_request_can_end_in_the_write_that_stores_it,
                a_new_request_that_has_ended_before_is_a_duplicate_by_id,
                a_new_request_that_has_ended_before_is_a_duplicate_by_key,
                a_new_request_that_is_open_is_a_duplicate_without_a_reply,
                of_many_requests_with_one_key_exactly_one_is_stored,
                one_request_that_is_submitted_many_times_is_stored_once,
            ],
            states: [
                a_first_state_is_version_one,
                each_state_is_the_next_version,
                a_state_that_was_built_on_another_version_is_a_conflict,
                entities_of_two_types_with_one_id_have_their_own_states,
                a_state_may_be_empty_or_a_mebibyte,
                everybody_of_many_who_read_at_once_gets_what_they_asked_for,
                an_entity_may_run_ahead_of_its_commits,
                an_entity_may_run_far_ahead_with_requests_of_its_own,
                a_failed_write_fails_those_built_on_it_and_nobody_else,
                a_duplicate_fails_the_states_that_were_built_on_it,
                one_of_many_writes_that_fails_takes_nobody_with_it,
                writes_of_one_shard_commit_in_the_order_in_which_they_were_submitted,
                many_writers_each_get_their_own_commit,
            ],
            streams: [
                chunks_come_back_in_order_and_as_they_were,
                chunks_come_after_a_given_one_and_no_more_than_asked_for,
                a_chunk_that_is_stored_again_is_left_as_it_is,
                chunks_that_are_submitted_at_once_are_all_stored,
                an_acknowledgement_forgets_chunks_and_raises_the_watermark,
                a_watermark_only_rises,
                a_watermark_remembers_chunks_that_are_no_longer_kept,
                an_acknowledged_chunk_does_not_come_back,
                chunks_outlive_the_end_of_their_request,
                timers_come_by_horizon_and_soonest_first,
                a_timer_that_is_set_again_is_moved,
                a_timer_can_be_taken_away_whether_it_is_there_or_not,
                a_timer_belongs_to_the_shard_of_its_entity,
            ],
            executions: [
                an_execution_comes_back_as_it_was,
                any_text_can_be_the_address_of_an_execution,
                an_execution_begins_once,
                of_many_that_begin_one_execution_exactly_one_does,
                an_execution_can_be_in_every_phase,
                what_an_execution_cannot_be_is_rejected,
                a_change_of_an_execution_in_another_run_is_a_conflict,
                a_renewed_execution_goes_on_in_its_new_run,
                a_write_may_change_one_execution_several_times,
                changes_of_an_execution_that_are_submitted_at_once_apply_in_order,
                a_failed_change_of_an_execution_fails_nobody_else,
                nothing_of_an_execution_is_written_by_an_old_owner,
                only_active_executions_are_to_be_resumed,
                active_executions_come_by_shard_and_in_pages,
                executions_are_listed_newest_first,
                executions_are_listed_by_type_phase_and_time,
                a_listing_in_pages_leaves_nothing_out,
                timers_of_an_execution_are_those_of_its_address,
            ],
            journals: [
                entries_come_back_in_order_and_as_they_were,
                entries_come_from_a_place_on_and_no_more_than_asked_for,
                no_entries_are_no_trouble,
                a_place_that_is_taken_or_after_a_gap_is_a_conflict,
                a_run_may_append_ahead_of_its_commits,
                entries_that_were_built_on_a_failed_one_fail_and_nobody_elses,
                finished_executions_are_kept_by_how_they_ended,
                the_journals_of_all_runs_are_forgotten_with_their_execution,
                many_executions_and_long_journals_are_forgotten_in_one_call,
                what_somebody_holds_is_not_forgotten,
                who_holds_what_is_listed_in_pages,
                what_has_not_ended_is_counted_by_phase,
            ],
            letters: [
                a_buried_request_is_a_dead_letter_and_its_reply_a_defect,
                a_request_that_is_not_open_cannot_be_buried,
                dead_letters_come_newest_first_and_in_pages,
                dead_letters_are_listed_by_group,
                a_replayed_letter_is_open_again_with_all_attempts_before_it,
                a_replayed_letter_can_die_again,
                only_a_dead_letter_can_be_replayed_or_dropped,
                a_dropped_letter_is_gone_and_its_reply_is_kept,
                what_is_young_enough_is_kept,
                each_class_is_kept_for_its_own_time,
                what_is_not_finished_is_never_forgotten,
                keys_and_chunks_are_forgotten_with_their_request,
                a_letter_can_be_replayed_after_its_reply_was_forgotten,
                much_that_is_old_is_forgotten_in_one_call,
            ],
            life: [
                a_store_knows_who_it_is,
                an_owner_is_woken_for_what_others_wrote,
                many_shards_of_many_groups_are_woken_at_once,
                what_is_committed_is_there_for_whoever_comes_later,
                a_receipt_that_is_thrown_away_does_not_take_the_write_back,
                a_full_queue_makes_writers_wait_and_loses_nothing,
                closing_commits_what_is_queued_and_then_refuses,
                closing_one_store_leaves_the_others_open,
                many_stores_may_open_a_fresh_database_at_once,
                a_database_belongs_to_the_cluster_that_came_first,
                a_database_is_taken_over_from_the_cluster_that_is_named,
                a_binary_that_is_too_old_is_refused_and_others_are_not,
            ],
            transactions: [
                statements_and_write_commit_together,
                a_transaction_that_is_dropped_has_done_nothing,
                a_transaction_whose_fence_has_fallen_is_taken_back,
                the_statements_of_a_duplicate_are_taken_back,
                what_the_write_was_not_built_on_takes_the_statements_back,
                a_transaction_that_its_user_ended_is_not_committed,
                a_savepoint_that_is_taken_back_leaves_the_rest,
                a_statement_for_another_database_is_refused_by_name,
                many_transactions_beside_group_commits_keep_what_they_share_whole,
                a_closed_store_begins_no_transaction,
            ],
            property: [
                stores_answer_as_the_model_predicts,
            ],
        }
    };
    (@modules $database:ty; $($module:ident: [$($case:ident,)*],)*) => {
        $($($crate::store_conformance! { @case $database; $module $case })*)*
    };
    (@case $database:ty; $module:ident $case:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let world = $crate::store::conformance::World::<$database>::new().await;
            $crate::store::conformance::$module::$case(world).await;
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_list() {
        let list = include_str!("mod.rs");
        let modules = [
            include_str!("dedupe.rs"),
            include_str!("executions.rs"),
            include_str!("journals.rs"),
            include_str!("letters.rs"),
            include_str!("life.rs"),
            include_str!("messages.rs"),
            include_str!("ownership.rs"),
            include_str!("property.rs"),
            include_str!("states.rs"),
            include_str!("streams.rs"),
            include_str!("transactions.rs"),
        ];
        let names = modules.iter().flat_map(|module| module.split("\npub async fn ").skip(1));
        let names: Vec<_> = names.filter_map(|rest| rest.split('<').next()).collect();
        assert!(names.len() > 60);
        for name in names {
            assert!(list.contains(&format!(" {name},\n")), "{name} is run by nobody");
        }
    }
}
