//! The Common Expression Language, evaluated within a budget.
