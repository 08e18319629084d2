//! Decisions: from what a person wrote and what was measured to what should stand. Pure: values in, values out.
//!
//! Reading order, which is that of the [`chain`](mod@chain): [`validate`](mod@validate) (draft to policy), [`entry`](mod@entry) (policy, tenant and rule
//! compiled together), [`evaluate`](mod@evaluate) and [`judge`](mod@judge) (verdict and phase), [`reuse`](mod@reuse) (when the rule need not be asked), `phase` and `recovery` (the machine),
//! [`standing`](mod@standing) (what stands already), [`claims`](mod@claims) (actions to slots), [`holder`](mod@holder) (who is before whom), [`budget`](mod@budget),
//! `isolation` and [`weights`](mod@weights) (limits and arithmetic), [`plan`](mod@plan) (all of it per slot), [`edit`](mod@edit) (what an edit does to
//! the state), [`explain`](mod@explain) (all of it in words).
//!
//! This room never compares a reading with a threshold: rules do. It knows no cluster, no clock and no files.

pub mod budget;
pub mod chain;
pub mod claims;
pub mod edit;
pub mod entry;
pub mod evaluate;
pub mod explain;
pub mod holder;
mod isolation;
pub mod judge;
mod own_query;
mod phase;
pub mod plan;
mod recovery;
pub mod reuse;
pub mod standing;
pub mod validate;
pub mod weights;

pub use budget::{Budgets, Freeze};
pub use chain::{Decision, decide, prepare, settle};
pub use claims::{Claim, Held, Want, claims};
pub use edit::carry_over;
pub use entry::Entry;
pub use evaluate::evaluate;
pub use explain::{Explanation, Situation, explain};
pub use holder::Precedence;
pub use judge::{Judgement, Turn, judge, judge_after, next_due};
pub(crate) use own_query::check_query;
pub use plan::{Facts, Plan, Planned, WouldHave, plan};
pub use reuse::{Before, Origin};
pub use standing::{Standing, groups, replaced, standing};
pub use validate::{Invalid, Surroundings, validate};
