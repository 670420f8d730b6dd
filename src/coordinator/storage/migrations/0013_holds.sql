-- Kudos that are kept for requests that are paid for before they are made: a row for each until it has ended. `held` is
-- their sum for each account, kept in the transactions that make and release them.
CREATE TABLE holds (
    request TEXT PRIMARY KEY,
    account BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);
ALTER TABLE balances ADD COLUMN held BIGINT NOT NULL DEFAULT 0;
