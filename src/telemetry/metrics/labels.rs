//! The closed label sets of counters. A counter's every combination exists at 0 before its first event, since one
//! that is born at 1 has no increase.

macro_rules! labels {
    ($($(#[$doc:meta])+ $name:ident { $($(#[$variant_doc:meta])+ $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])+ $variant),+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As in the label.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    )+};
}

labels! {
    /// What an evaluation came to.
    EvaluationResult {
        /// The rule says breached.
        Hit = "hit",
        /// The rule says ok.
        Miss = "miss",
        /// Nothing could be said.
        Unknown = "unknown",
        /// The rule failed or overran.
        Error = "error",
    }

    /// Where a verdict came from.
    VerdictOrigin {
        /// The rule was asked.
        Evaluated = "evaluated",
        /// Nothing that the rule looks at had changed.
        Reused = "reused",
    }

    /// What an action's effect came to.
    ExecutionResult {
        /// The effect stands.
        Success = "success",
        /// The API server or the sink refused it, or could not be reached.
        Failure = "failure",
        /// Overridden, out of budget, frozen, or nothing to do it on.
        Skipped = "skipped",
        /// Recorded only.
        DryRun = "dry_run",
    }

    /// A step of the policy loop.
    Step {
        /// Checking what was written.
        Validate = "validate",
        /// Measuring and looking up targets.
        Fetch = "fetch",
        /// Judging and planning.
        Calculate = "calculate",
        /// Making and undoing effects.
        Apply = "apply",
        /// Writing status and Events.
        Status = "status",
        /// Publishing the view.
        Export = "export",
    }

    /// How a reconcile ended, in the words of controller-runtime.
    ReconcileResult {
        /// Done; the next change starts the next one.
        Success = "success",
        /// Failed; tried again with back-off.
        Error = "error",
        /// Asked to be called again at once.
        Requeue = "requeue",
        /// Asked to be called again at a time.
        RequeueAfter = "requeue_after",
    }
}
