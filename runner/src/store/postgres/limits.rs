//! Time limits of users' transactions: a hung one must not hold its locks, its connection and the xmin horizon forever.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use super::Options;
use crate::store::transaction::Spoilt;

/// The variables that set the limits, for errors.
const IDLE: &str = "CLEAT_TRANSACTION_IDLE_TIMEOUT";
const TOTAL: &str = "CLEAT_TRANSACTION_TIMEOUT";

/// How long a user's transaction may be idle, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    idle: Duration,
    total: Duration,
    statement: Duration,
}

impl Limits {
    pub(super) fn new(options: &Options) -> Self {
        let (idle, total) = (options.transaction_idle, options.transaction_timeout);
        // A COMMIT that is canceled while it waits for a standby counts as done, so nobody may wait for it by then.
        Self { idle, total, statement: total.max(options.patience * 2) }
    }

    /// Given at the start of the connection, so that RESET ALL between two transactions brings them back.
    pub(super) fn apply(&self, options: PgConnectOptions) -> PgConnectOptions {
        let millis = |limit: Duration| format!("{}ms", limit.as_millis());
        options.options([
            ("idle_in_transaction_session_timeout", millis(self.idle)),
            ("statement_timeout", millis(self.statement)),
        ])
    }

    /// Why a transaction that has been open for so long cannot be committed, if it cannot.
    pub(super) fn overdue(&self, open: Duration) -> Option<Spoilt> {
        (open > self.total).then_some(Spoilt::Overdue { setting: TOTAL, limit: self.total })
    }

    /// The limit because of which the server ended a transaction.
    pub(super) fn exceeded(&self, error: &sqlx::Error) -> Option<Spoilt> {
        let code = error.as_database_error().and_then(|error| error.code())?;
        (code == "25P03").then_some(Spoilt::Idle { setting: IDLE, limit: self.idle })
    }
}
