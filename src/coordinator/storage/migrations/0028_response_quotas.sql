-- Background responses begin again after a restart: how often one has begun, and the model whose workers it waits for.
-- An account may store so many responses and bytes.
ALTER TABLE responses ADD COLUMN model TEXT;
ALTER TABLE responses ADD COLUMN begun BIGINT NOT NULL DEFAULT 0;
ALTER TABLE responses ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE responses ADD COLUMN created_at BIGINT NOT NULL DEFAULT 0;
UPDATE responses SET bytes = LENGTH(response) + LENGTH(input) + COALESCE(LENGTH(body), 0);
UPDATE responses SET begun = 1 WHERE body IS NOT NULL;
DROP INDEX responses_account;
-- Sums and conversations are read without the texts.
CREATE INDEX responses_sizes ON responses (account, id, previous, bytes);
CREATE INDEX responses_open ON responses (id, account, model) WHERE body IS NOT NULL;
