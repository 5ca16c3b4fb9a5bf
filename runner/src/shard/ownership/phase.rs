//! What to do about one shard next.

use crate::shard::{Epoch, Fence};

/// How far a shard is on this runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing of it is here.
    Elsewhere,
    /// A claim is under way: the Lease first, then the epoch.
    Claiming,
    /// It is ours, and the host loads its open work.
    Opening(Fence),
    /// The host serves it.
    Serving(Fence),
    /// The host finishes or parks what runs, and admits nothing new.
    HandingOver(Fence),
    /// The host has let go of it, and its Lease is being freed.
    Freeing,
    /// It was let go because neither the Leases nor the database could be asked whose it is. This was its fence.
    Detached(Fence),
}

impl Phase {
    /// The word that metrics carry.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::Claiming => "claiming",
            Self::Opening(_) => "opening",
            Self::Serving(_) => "serving",
            Self::HandingOver(_) => "handing_over",
            Self::Freeing => "freeing",
            Self::Detached(_) => "detached",
        }
    }

    /// The fence under which the host has something of the shard.
    pub fn held(&self) -> Option<&Fence> {
        match self {
            Self::Opening(fence) | Self::Serving(fence) | Self::HandingOver(fence) => Some(fence),
            Self::Elsewhere | Self::Claiming | Self::Freeing | Self::Detached(_) => None,
        }
    }
}

/// Whether a shard should be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Keep,
    Leave,
}

/// What a shard's Lease says, as last seen. It may be old news; the epoch tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// There is none.
    Missing,
    /// It was freed, or its holder is dead.
    Free(Epoch),
    /// It names this runner.
    Ours,
    /// It names somebody else who is alive.
    Theirs(Epoch),
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Claim the shard with a new epoch.
    Claim,
    /// Write the Lease again with the epoch that we have: it was lost, and we were not.
    Restore,
    /// Let the host finish, then free the Lease.
    Close,
    /// Free the Lease: nothing of the shard is here.
    Free,
    /// Somebody else has it: let the host drop everything at once.
    Discard,
}

/// Decides what a shard needs now. Where something is under way already, nothing but its loss matters.
pub(super) fn next(phase: &Phase, wish: Wish, view: View) -> Option<Action> {
    match (phase, wish, view) {
        // A later claim than ours is in the Lease, whoever made it and whether they still live.
        (
            Phase::Opening(fence) | Phase::Serving(fence) | Phase::HandingOver(fence),
            _,
            View::Free(epoch) | View::Theirs(epoch),
        ) if epoch > fence.epoch => Some(Action::Discard),

        (Phase::Serving(_), Wish::Leave, _) => Some(Action::Close),
        (Phase::Serving(_), Wish::Keep, View::Missing) => Some(Action::Restore),
        (Phase::Serving(fence), Wish::Keep, View::Free(epoch)) if epoch == fence.epoch => {
            Some(Action::Restore)
        }

        (Phase::Elsewhere | Phase::Detached(_), Wish::Keep, View::Missing | View::Free(_) | View::Ours) => {
            Some(Action::Claim)
        }
        // An earlier claim got stuck after the Lease, or an earlier attempt to free it did not arrive.
        (Phase::Elsewhere | Phase::Detached(_), Wish::Leave, View::Ours) => Some(Action::Free),

        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shard::{GroupName, ShardId};

    fn fence(epoch: i64) -> Fence {
        Fence { shard: ShardId::new(GroupName::default(), 0), epoch: Epoch::new(epoch) }
    }

    #[test]
    fn a_shard_of_ours_that_nobody_holds_is_claimed() {
        for view in [View::Missing, View::Free(Epoch::new(7)), View::Ours] {
            assert_eq!(next(&Phase::Elsewhere, Wish::Keep, view), Some(Action::Claim));
        }
        assert_eq!(next(&Phase::Elsewhere, Wish::Keep, View::Theirs(Epoch::new(7))), None);
    }

    #[test]
    fn a_lease_that_names_us_without_need_is_freed() {
        assert_eq!(next(&Phase::Elsewhere, Wish::Leave, View::Ours), Some(Action::Free));
        assert_eq!(next(&Phase::Elsewhere, Wish::Leave, View::Missing), None);
    }

    #[test]
    fn old_news_of_an_earlier_owner_does_not_end_our_service() {
        for view in [View::Theirs(Epoch::new(4)), View::Free(Epoch::new(4)), View::Theirs(Epoch::new(5))] {
            assert_eq!(next(&Phase::Serving(fence(5)), Wish::Keep, view), None);
        }
    }

    #[test]
    fn a_lease_that_was_deleted_or_freed_under_us_is_written_again() {
        for view in [View::Missing, View::Free(Epoch::new(5))] {
            assert_eq!(next(&Phase::Serving(fence(5)), Wish::Keep, view), Some(Action::Restore));
        }
    }

    fn phases() -> impl Strategy<Value = Phase> {
        let epoch = 1i64..6;
        prop_oneof![
            Just(Phase::Elsewhere),
            Just(Phase::Claiming),
            Just(Phase::Freeing),
            epoch.clone().prop_map(|e| Phase::Opening(fence(e))),
            epoch.clone().prop_map(|e| Phase::Serving(fence(e))),
            epoch.clone().prop_map(|e| Phase::HandingOver(fence(e))),
            epoch.prop_map(|e| Phase::Detached(fence(e))),
        ]
    }

    fn views() -> impl Strategy<Value = View> {
        prop_oneof![
            Just(View::Missing),
            Just(View::Ours),
            (1i64..6).prop_map(|e| View::Free(Epoch::new(e))),
            (1i64..6).prop_map(|e| View::Theirs(Epoch::new(e))),
        ]
    }

    proptest! {
        #[test]
        fn a_shard_is_claimed_only_while_nothing_of_it_is_here(
            phase in phases(), keep in any::<bool>(), view in views()
        ) {
            let wish = if keep { Wish::Keep } else { Wish::Leave };
            match next(&phase, wish, view) {
                Some(Action::Claim) => {
                    prop_assert!(keep && phase.held().is_none());
                    prop_assert!(!matches!(view, View::Theirs(_)), "claimed from a living holder");
                }
                Some(Action::Free) => prop_assert!(!keep && phase.held().is_none()),
                Some(Action::Close) => prop_assert!(!keep && matches!(phase, Phase::Serving(_))),
                Some(Action::Restore) => prop_assert!(keep && matches!(phase, Phase::Serving(_))),
                Some(Action::Discard) => prop_assert!(phase.held().is_some()),
                None => {}
            }
        }

        #[test]
        fn whoever_has_been_superseded_lets_go(phase in phases(), keep in any::<bool>(), later in 6i64..9) {
            let wish = if keep { Wish::Keep } else { Wish::Leave };
            let expected = phase.held().map(|_| Action::Discard);
            let action = next(&phase, wish, View::Theirs(Epoch::new(later)));
            prop_assert_eq!(action, expected);
        }
    }
}
