-- What was made. Each batch of settlements adds a few lines of its own, so that none waits for another; they are soon
-- folded into the rollups. `size` is what was asked for and `done` what was made of it, both in tokens or pixelsteps;
-- `busy_ms` is how long workers had it.
CREATE TABLE made (
    id {ID},
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    at BIGINT NOT NULL,
    outputs BIGINT NOT NULL,
    size BIGINT NOT NULL,
    done BIGINT NOT NULL,
    busy_ms BIGINT NOT NULL
);

-- The same by spans of time, the longer the older; span 0 is everything before the longest.
CREATE TABLE rollups (
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    span BIGINT NOT NULL,
    at BIGINT NOT NULL,
    outputs BIGINT NOT NULL,
    size BIGINT NOT NULL,
    done BIGINT NOT NULL,
    busy_ms BIGINT NOT NULL,
    PRIMARY KEY (kind, model, span, at)
);
CREATE INDEX rollups_at ON rollups (span, at);
