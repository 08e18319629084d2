//! Everything that needs more than one room: borders, the World, real parts.

mod admission;
mod bad_input;
mod borders;
mod cases;
mod contract;
mod counts;
mod decide_properties;
mod effects;
mod real;
mod reasons;
mod rego_cases;
mod signals;
mod story;
mod support;
mod world;
