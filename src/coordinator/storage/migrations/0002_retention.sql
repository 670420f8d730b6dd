-- What each account had before the oldest entry that is kept: an opening balance. Opening balance and entries
-- together are the balance.
CREATE TABLE openings (
    account BIGINT PRIMARY KEY,
    kudos BIGINT NOT NULL
);

-- Jobs and entries by when they ended. An entry has the moment of its job's end.
CREATE INDEX settled_ended ON settled ((accepted_at + total_ms));
CREATE INDEX ledger_at ON ledger (at);
