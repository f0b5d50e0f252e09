//! Taking rows of which the table may refuse some.
//!
//! A constraint that old rows do not meet, or a trigger, refuses the claim of one row, and with it the statement that claims
//! many. Such a row is found and left out; what follows it in its key waits, and no others do.

use posthaste_core::MessageId;
use posthaste_core::store::{ClaimRequest, ClaimedMessage, Halving, RefusedRow, SearchDeadline};
use sqlx::{Connection, MySqlConnection};

use crate::MySqlStore;
use crate::error::{by_number, number, store_error};

/// How the rows of one claim are taken.
pub(crate) struct Taking<'a> {
    request: &'a ClaimRequest,
    left_out: Vec<MessageId>,
    /// Until when rows are looked for that are refused, if they are.
    with_care: Option<SearchDeadline>,
    pub(crate) refused: Vec<RefusedRow>,
}

impl<'a> Taking<'a> {
    /// As if no row were refused, which costs nothing.
    pub(crate) fn on_trust(request: &'a ClaimRequest) -> Self {
        Self {
            request,
            left_out: request.left_out.clone(),
            with_care: None,
            refused: Vec::new(),
        }
    }

    /// With savepoints, so that those rows are found which are refused.
    pub(crate) fn with_care(request: &'a ClaimRequest) -> Self {
        Self {
            with_care: Some(SearchDeadline::begin()),
            ..Self::on_trust(request)
        }
    }

    /// Chooses rows and leases them.
    pub(crate) async fn messages(
        &mut self,
        store: &MySqlStore,
        conn: &mut MySqlConnection,
        limit: u32,
        expired: bool,
    ) -> sqlx::Result<Vec<ClaimedMessage>> {
        let Some(deadline) = self.with_care else {
            let chosen = store.take(conn, self.request, limit, expired, &self.left_out).await?;
            store.lease(conn, self.request, &chosen).await?;
            return store.read_claimed(conn, &chosen).await;
        };
        // Each round leaves out what the one before has found.
        loop {
            let chosen = store.take(conn, self.request, limit, expired, &self.left_out).await?;
            let mut apart = conn.begin().await?;
            let error = match store.lease(&mut apart, self.request, &chosen).await {
                Err(error) if is_refusal(&error) => error,
                leased => {
                    leased?;
                    apart.commit().await?;
                    return store.read_claimed(conn, &chosen).await;
                }
            };
            apart.rollback().await?;
            if !self.refused.is_empty() && deadline.is_over() {
                return Ok(Vec::new());
            }
            let refused = self.find_refused(store, conn, chosen, deadline).await?;
            if refused.is_empty() {
                return Err(error);
            }
            self.left_out.extend(refused.iter().map(|row| row.id));
            self.refused.extend(refused);
        }
    }

    /// Which of these rows cannot be leased. What is tried is undone.
    async fn find_refused(
        &self,
        store: &MySqlStore,
        conn: &mut MySqlConnection,
        ids: Vec<MessageId>,
        deadline: SearchDeadline,
    ) -> sqlx::Result<Vec<RefusedRow>> {
        let mut halving = Halving::new(ids, deadline);
        let mut all = conn.begin().await?;
        while let Some(group) = halving.next_group() {
            let mut apart = all.begin().await?;
            match store.lease(&mut apart, self.request, &group).await {
                Ok(()) => {
                    apart.commit().await?;
                    halving.tried(group, None);
                }
                Err(error) if is_refusal(&error) => {
                    apart.rollback().await?;
                    halving.tried(group, Some(store_error(error).to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        all.rollback().await?;
        Ok(halving.into_refused())
    }
}

/// Whether the table objects to what was to be written.
pub(crate) fn is_refusal(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| by_number(number).0.may_be_a_refusal())
}
