-- What is kept of the budgets of shared keys: a row for each request that was asked with one, until it has ended. `held`
-- is their sum for each key, kept in the transactions that make and release them.
CREATE TABLE key_holds (
    request TEXT PRIMARY KEY,
    shared_key TEXT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);
ALTER TABLE shared_keys ADD COLUMN held BIGINT NOT NULL DEFAULT 0;
