-- Replies to requests with an Idempotency-Key, sealed: only that header opens them. key is its digest.
CREATE TABLE replies (
    account BIGINT NOT NULL,
    key TEXT NOT NULL,
    sealed TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (account, key)
);
CREATE INDEX replies_expires_at ON replies (expires_at);
