-- Keys that users hand to others: the owner pays, within a budget. Nothing in `budget` means no limit, -1 in the limits
-- of a job likewise.
CREATE TABLE shared_keys (
    id TEXT PRIMARY KEY,
    owner BIGINT NOT NULL,
    name TEXT,
    budget BIGINT,
    utilized BIGINT NOT NULL,
    expires_at BIGINT,
    max_image_pixels BIGINT NOT NULL,
    max_image_steps BIGINT NOT NULL,
    max_text_tokens BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX shared_keys_owner ON shared_keys (owner);
