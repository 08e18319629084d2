//! `tradeguard trial` (hidden): the child process in which a rule that somebody brings is compiled first.

use std::io::stdin;

use super::{Exit, Result, Streams};
use crate::sources::trial;

pub(super) fn run(streams: &mut Streams<'_>) -> Result {
    trial::serve(stdin().lock(), &mut *streams.out)?;
    Ok(Exit::Ok)
}
