//! What a rule may use.

use std::num::NonZeroU32;
use std::time::Duration;

use regorus::utils::limits::ExecutionTimerConfig;

/// What a module set may be, and what one evaluation of it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall time of one evaluation. The engine looks at the clock now and then, so a single long builtin call
    /// overruns it; shorter limits than 50 ms trip on scheduling noise.
    pub evaluation: Duration,
    /// Instructions of one evaluation, where a rule runs as bytecode.
    pub instructions: usize,
    /// Bytes of one module's source.
    pub source_bytes: usize,
    /// How deep brackets and braces may be nested: the parser's time doubles with every level.
    pub nesting: u32,
    /// How much work the nested brackets of a module set may make the parser, in units of one unnested bracket.
    pub parse_work: u64,
    /// How many operators one expression may have: a thousand overflow a thread's stack.
    pub chain: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            evaluation: Duration::from_millis(250),
            instructions: 1_000_000,
            source_bytes: 256 * 1024,
            nesting: 10,
            parse_work: 40_000,
            chain: 200,
        }
    }
}

/// How many steps the engine may make between two looks at the clock.
const STEPS_PER_LOOK: NonZeroU32 = NonZeroU32::new(256).unwrap();

impl Limits {
    pub(super) fn timer(&self) -> ExecutionTimerConfig {
        ExecutionTimerConfig { limit: self.evaluation, check_interval: STEPS_PER_LOOK }
    }
}
