//! Asking services outside, against real sockets.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod egress {
    mod rules;
    mod service;
    mod tls;
    mod trouble;
}
