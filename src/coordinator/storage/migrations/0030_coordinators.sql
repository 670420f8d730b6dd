-- The coordinator that serves this database: its row, which it renews by the server's clock, is its lease, and every batch
-- that it writes begins with a look at it. The next coordinator takes the row away before it writes anything. Requests,
-- background responses and holds name the epoch of the coordinator that has them in its queue; 0: of an earlier version.
CREATE TABLE coordinators (
    epoch BIGINT PRIMARY KEY,
    renewed_at BIGINT NOT NULL
);
ALTER TABLE requests ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
ALTER TABLE responses ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
ALTER TABLE holds ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
ALTER TABLE key_holds ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
ALTER TABLE credit_holds ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
