//! The shapes of input and output as JSON Schema; docs/schemas holds the same.
