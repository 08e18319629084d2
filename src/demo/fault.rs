//! What goes wrong in the demo, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use super::simulation::Faults;

/// Which fault the demo plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// One Pod becomes slow, then the exchange behind the whole service; both get well again.
    #[default]
    Story,
    /// Nothing goes wrong.
    None,
    /// One Pod becomes slow and gets well again.
    Pod,
    /// The exchange becomes slow and gets well again.
    Service,
    /// The exchange becomes slow and stays so.
    Endless,
}

/// The Pod that becomes slow.
pub const SLOW_POD: &str = "core-trading-primary-2";

const POD_FROM: Duration = Duration::from_secs(30);
const SERVICE_FROM: Duration = Duration::from_secs(75);
const WELL_AGAIN: Duration = Duration::from_secs(300);

/// Seconds that a slow Pod, and a slow exchange, add to a request.
const SLOW_POD_BY: f64 = 1.0;
const SLOW_EXCHANGE_BY: f64 = 0.8;

impl Fault {
    /// What is wrong `since` the start.
    pub fn at(self, since: Duration) -> Faults {
        let (pod, service) = match self {
            Self::None => (false, false),
            Self::Story => ((POD_FROM..WELL_AGAIN).contains(&since), (SERVICE_FROM..WELL_AGAIN).contains(&since)),
            Self::Pod => ((POD_FROM..WELL_AGAIN).contains(&since), false),
            Self::Service => (false, (POD_FROM..WELL_AGAIN).contains(&since)),
            Self::Endless => (false, since >= POD_FROM),
        };
        Faults {
            pods: if pod { BTreeMap::from([(SLOW_POD.to_owned(), SLOW_POD_BY)]) } else { BTreeMap::new() },
            exchange: if service { SLOW_EXCHANGE_BY } else { 0.0 },
        }
    }

    /// What is wrong `since` the start, in words; empty: nothing.
    pub fn in_words(self, since: Duration) -> &'static str {
        let faults = self.at(since);
        match (faults.pods.is_empty(), faults.exchange > 0.0) {
            (true, false) => "",
            (false, false) => "Pod primary-2 is slow",
            (true, true) => "the exchange is slow",
            (false, true) => "Pod primary-2 and the exchange are slow",
        }
    }

    /// When nothing is wrong any more; none: never.
    pub fn ends(self) -> Option<Duration> {
        match self {
            Self::None => Some(Duration::ZERO),
            Self::Endless => None,
            _ => Some(WELL_AGAIN),
        }
    }
}
