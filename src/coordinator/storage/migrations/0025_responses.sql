-- Responses that clients may read again and go on from. body: the request, while a background response has not ended.
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    account BIGINT NOT NULL,
    previous TEXT,
    response TEXT NOT NULL,
    input TEXT NOT NULL,
    body TEXT,
    expires_at BIGINT NOT NULL
);
CREATE INDEX responses_expires_at ON responses (expires_at);
CREATE INDEX responses_account ON responses (account);
