-- Flags are 0 and 1, times are milliseconds since the Unix epoch, kudos are thousandths.
-- {ID} is the engine's word for a key that it hands out itself.

-- Numbers that belong to the whole store. `keys` rises with every change of a key.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('schema', 0), ('keys', 0), ('probe', 0);

-- Text that belongs to the whole store, such as the server secret.
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Account -1 is the house itself and 0 the anonymous account of the legacy side; people begin with 1.
CREATE TABLE accounts (
    id {ID},
    name TEXT NOT NULL,
    roles TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX accounts_name ON accounts (name);
INSERT INTO accounts (id, name, roles, created_at) VALUES (-1, 'house', '', 0), (0, 'anonymous', '', 0);

CREATE TABLE keys (
    id {ID},
    public_id TEXT NOT NULL UNIQUE,
    account BIGINT NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    label TEXT NOT NULL,
    scopes TEXT NOT NULL,
    worker_name TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    revision BIGINT NOT NULL
);
CREATE INDEX keys_revision ON keys (revision);

CREATE TABLE workers (
    id {ID},
    public_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    owner BIGINT NOT NULL,
    trusted BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

-- One row for each ended job, whatever its end. `reward` is that of the worker that ended it.
CREATE TABLE settled (
    job TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    account BIGINT NOT NULL,
    worker BIGINT,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    paid_tokens BIGINT NOT NULL,
    reward BIGINT NOT NULL,
    charge BIGINT NOT NULL,
    accepted_at BIGINT NOT NULL,
    queued_ms BIGINT,
    first_output_ms BIGINT,
    total_ms BIGINT NOT NULL
);

-- Append-only. The entries of one job sum to zero.
CREATE TABLE ledger (
    id {ID},
    job TEXT NOT NULL,
    account BIGINT NOT NULL,
    worker BIGINT,
    reason TEXT NOT NULL,
    amount BIGINT NOT NULL,
    at BIGINT NOT NULL
);

-- The sum of each account's entries, kept in the transaction that appends them.
CREATE TABLE balances (
    account BIGINT PRIMARY KEY,
    kudos BIGINT NOT NULL
);
