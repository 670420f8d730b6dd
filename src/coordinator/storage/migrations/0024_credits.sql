-- Money of accounts, in micro-USD. What is held for jobs is not in these amounts. `day` counts UTC days from 1970-01-01;
-- `free_used` and `requests` are of that day.
CREATE TABLE credits (
    account BIGINT PRIMARY KEY,
    paid BIGINT NOT NULL,
    promotional BIGINT NOT NULL,
    day BIGINT NOT NULL,
    free_used BIGINT NOT NULL,
    requests BIGINT NOT NULL
);
-- What is held for jobs that have not ended, by what it was taken from. `day` is that of the free credits.
CREATE TABLE credit_holds (
    job TEXT PRIMARY KEY,
    account BIGINT NOT NULL,
    promotional BIGINT NOT NULL,
    free BIGINT NOT NULL,
    paid BIGINT NOT NULL,
    day BIGINT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX credit_holds_account ON credit_holds (account);
-- Credits that were added, without a job, and costs of jobs, below zero.
CREATE TABLE credit_entries (
    id {ID},
    account BIGINT NOT NULL,
    job TEXT,
    promotional BIGINT NOT NULL,
    free BIGINT NOT NULL,
    paid BIGINT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX credit_entries_at ON credit_entries (at);
-- What a job cost in micro-USD; none where its account did not pay in money.
ALTER TABLE settled ADD COLUMN cost BIGINT;
-- For the list of an account's jobs.
CREATE INDEX settled_account ON settled (account, accepted_at);
