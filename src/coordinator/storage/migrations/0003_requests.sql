-- Requests that are asked for later: each goes, with all it brought, when its time is over.
CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    account BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    accepted_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    cancelled BIGINT NOT NULL
);
CREATE INDEX requests_expiry ON requests (expires_at);

-- One row for each of their jobs that has ended, written in the transaction that settles it.
CREATE TABLE results (
    job TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    worker BIGINT,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    output TEXT NOT NULL,
    charge BIGINT NOT NULL
);
CREATE INDEX results_request ON results (request);
