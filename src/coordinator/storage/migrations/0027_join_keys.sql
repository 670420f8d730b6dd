-- Keys of join tokens: such a key belongs to the first worker that connects with it, and expires if none does.
ALTER TABLE keys ADD COLUMN joins BIGINT NOT NULL DEFAULT 0;
