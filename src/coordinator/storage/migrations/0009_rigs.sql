-- What is known of each worker besides its name: what it last said, what was decided about it, what it has done.
CREATE TABLE rigs (
    worker BIGINT PRIMARY KEY,
    trade TEXT NOT NULL DEFAULT '',
    agent TEXT NOT NULL DEFAULT '',
    address TEXT NOT NULL DEFAULT '',
    threads BIGINT NOT NULL DEFAULT 1,
    nsfw BIGINT NOT NULL DEFAULT 0,
    models TEXT NOT NULL DEFAULT '[]',
    -- What else it takes, as words; and its limits, where its trade has them.
    takes TEXT NOT NULL DEFAULT '',
    max_pixels BIGINT NOT NULL DEFAULT 0,
    max_length BIGINT NOT NULL DEFAULT 0,
    max_context BIGINT NOT NULL DEFAULT 0,
    seen_at BIGINT NOT NULL DEFAULT 0,
    info TEXT NOT NULL DEFAULT '',
    maintenance BIGINT NOT NULL DEFAULT 0,
    maintenance_note TEXT NOT NULL DEFAULT '',
    paused BIGINT NOT NULL DEFAULT 0,
    team BIGINT,
    -- Sums: seconds, jobs, thousandths of kudos, and pixelsteps, tokens or forms.
    uptime BIGINT NOT NULL DEFAULT 0,
    fulfilled BIGINT NOT NULL DEFAULT 0,
    uncompleted BIGINT NOT NULL DEFAULT 0,
    earned BIGINT NOT NULL DEFAULT 0,
    rewarded BIGINT NOT NULL DEFAULT 0,
    work BIGINT NOT NULL DEFAULT 0,
    -- Thousandths of pixelsteps, tokens or forms in a second.
    speed BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX rigs_seen ON rigs (seen_at);
INSERT INTO rigs (worker) SELECT id FROM workers;

-- Workers that count together. What a worker does for its team stays with the team.
CREATE TABLE teams (
    id {ID},
    public_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    info TEXT NOT NULL,
    creator BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    fulfilled BIGINT NOT NULL DEFAULT 0,
    earned BIGINT NOT NULL DEFAULT 0,
    uptime BIGINT NOT NULL DEFAULT 0
);

-- What workers are told with their next pop. One without a worker is for all.
CREATE TABLE worker_messages (
    id TEXT PRIMARY KEY,
    worker BIGINT,
    author BIGINT NOT NULL,
    message TEXT NOT NULL,
    origin TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX worker_messages_expiry ON worker_messages (expires_at);
