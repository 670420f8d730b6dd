-- Entries that are no job's: a transfer, an award, a correction. They stand in the ledger with the posting's id in the
-- place of the job's, and sum to zero like those of a job. `once` is the same for what must happen once only; `terms`
-- is what it is compared by when it comes again.
CREATE TABLE postings (
    id TEXT PRIMARY KEY,
    cause TEXT NOT NULL,
    about TEXT NOT NULL,
    once TEXT UNIQUE,
    terms TEXT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX postings_at ON postings (at);

-- What each account has given and received for each cause, ever: a projection of the postings, as balances are of all
-- entries.
CREATE TABLE tallies (
    account BIGINT NOT NULL,
    cause TEXT NOT NULL,
    kudos BIGINT NOT NULL,
    PRIMARY KEY (account, cause)
);
