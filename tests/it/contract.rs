//! What kube-rs controllers count on from a Kubernetes API, as scenarios that run against memkube and against the real API
//! server alike. Whatever passes here on both is a fact; nothing else makes memkube trustworthy.
//!
//! Each scenario gets a namespace of its own and asserts answers without uids, resource versions and times.

use std::{future::Future, pin::Pin};

mod apply;
mod builtins;
mod deletes;
mod lists;
mod patches;
mod room;
mod runtime;
mod watches;
mod writes;

use room::Room;

type Scenario = fn(Room) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((stringify!($name), (|room| Box::pin($module::$name(room))) as Scenario)),*]
    };
}

/// Every scenario, by the sentence it proves.
const SCENARIOS: &[(&str, Scenario)] = scenarios![
    writes::creating_twice_is_already_exists,
    writes::a_created_object_has_what_the_server_adds,
    writes::generated_names_are_the_base_and_five_letters,
    writes::a_bad_or_missing_name_is_refused,
    writes::objects_need_their_namespace,
    writes::a_stale_version_conflicts,
    writes::an_update_of_a_custom_resource_needs_a_version,
    writes::generation_moves_with_spec_only,
    writes::status_is_apart_from_the_rest,
    writes::a_write_that_changes_nothing_keeps_the_version,
    writes::undeclared_fields_are_pruned_and_defaults_filled_in,
    writes::a_dry_run_stores_nothing,
    writes::scale_reads_and_sets_the_replicas,
    writes::both_groups_show_the_same_events,
    patches::a_failed_test_is_invalid,
    patches::null_tests_an_absent_key,
    patches::malformed_patches_are_refused,
    patches::a_patch_that_names_a_version_is_guarded_by_it,
    patches::null_in_a_merge_patch_removes,
    patches::identity_cannot_be_patched,
    patches::a_patch_of_what_is_missing_is_not_found,
    apply::an_applied_object_belongs_to_its_manager,
    apply::what_is_no_longer_applied_goes,
    apply::another_managers_field_conflicts_until_forced,
    apply::the_same_value_is_shared_without_conflict,
    apply::applying_the_same_again_changes_nothing,
    apply::conditions_are_owned_by_type,
    apply::updates_own_what_they_change,
    apply::a_json_patch_can_remove_one_owner,
    apply::an_apply_needs_a_manager_and_no_managed_fields,
    lists::labels_select,
    lists::fields_select,
    lists::pages_are_of_one_version,
    lists::options_that_contradict_are_refused,
    lists::metadata_alone_can_be_asked_for,
    watches::a_watch_starts_after_its_version,
    watches::a_watch_without_a_version_starts_with_what_stands,
    watches::selectors_make_comings_and_goings_of_changes,
    watches::a_streamed_list_ends_with_a_marked_bookmark,
    watches::an_ancient_version_is_gone_in_the_stream,
    watches::options_that_contradict_are_refused,
    deletes::a_deletion_answers_with_a_status,
    deletes::finalizers_hold_an_object_until_the_last_is_gone,
    deletes::no_finalizer_can_be_added_while_deleting,
    deletes::preconditions_guard_a_deletion,
    deletes::a_collection_is_deleted_by_selector,
    deletes::a_deleted_custom_resource_definition_takes_its_objects_along,
    builtins::pods_take_metadata_through_status,
    builtins::a_deleted_pod_is_answered_with_its_last_state,
    builtins::deployments_count_generations_and_scale,
    builtins::leases_are_created_by_put_and_need_a_version,
    builtins::a_service_selector_is_owned_as_a_whole,
    builtins::config_maps_and_secrets_are_plain,
    builtins::a_namespace_is_labelled_with_its_name,
    runtime::a_recorder_counts_repetitions,
    runtime::a_controller_with_finalizers_comes_to_rest_after_three_reconciles,
    runtime::a_reflector_follows_what_happens,
    runtime::discovery_finds_the_kind,
];

/// Runs every scenario against the API behind `client`, which must be allowed everything; panics naming all that failed.
pub(crate) async fn run_all(client: kube::Client) {
    room::install_definition(&client).await;
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        let sentence = name.replace('_', " ");
        let room = Room::open(&client).await;
        // Its own task, so that one broken promise does not hide the others.
        match tokio::spawn(scenario(room.clone())).await {
            Ok(()) => room.close().await,
            Err(_) => failed.push(sentence),
        }
    }
    assert!(failed.is_empty(), "{} of {} promises are broken: {failed:#?}", failed.len(), SCENARIOS.len());
}

mod on_memkube {
    use chrono::{DateTime, Utc};
    use tradeguard::{
        clock::Clock,
        memkube::{MemKube, Options},
    };

    use super::*;

    fn memkube() -> MemKube {
        let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
        MemKube::new(Options::new(Clock::scaled(start, 1.0)))
    }

    #[tokio::test]
    async fn memkube_keeps_the_contract() {
        run_all(memkube().client("contract")).await;
    }

    #[tokio::test(start_paused = true)]
    async fn memkube_keeps_the_contract_in_paused_time() {
        run_all(memkube().client("contract")).await;
    }
}
