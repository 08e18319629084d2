//! TradeGuard.
