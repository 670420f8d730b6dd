-- What is known of an account beyond its name and roles: a row for each, the house aside.
CREATE TABLE people (
    account BIGINT PRIMARY KEY,
    -- By what another service knows whoever logged in with it; pseudonymous are those who did not.
    login TEXT UNIQUE,
    contact TEXT,
    admin_comment TEXT,
    -- Jobs that may wait at a time; as the settings say where there is none.
    concurrency BIGINT,
    worker_invited BIGINT NOT NULL,
    public_workers BIGINT NOT NULL,
    monthly_kudos BIGINT NOT NULL,
    monthly_paid_at BIGINT,
    suspicion BIGINT NOT NULL,
    deleted_at BIGINT,
    proxy_passkey TEXT UNIQUE
);
INSERT INTO people (account, concurrency, worker_invited, public_workers, monthly_kudos, suspicion)
    SELECT id, CASE id WHEN 0 THEN 500 END, 0, 0, 0, 0 FROM accounts WHERE id >= 0;
UPDATE accounts SET name = 'Anonymous' WHERE id = 0;
CREATE INDEX workers_owner ON workers (owner);

-- Below which no charge takes a balance; none for the house. Whoever has less is lifted there, out of the house's
-- pocket, as everybody who comes later begins there.
ALTER TABLE balances ADD COLUMN floor BIGINT;
INSERT INTO balances (account, kudos, floor)
    SELECT id, 0, CASE id WHEN 0 THEN -50000 ELSE 14000 END FROM accounts WHERE id >= 0
    ON CONFLICT (account) DO UPDATE SET floor = excluded.floor;
INSERT INTO tallies (account, cause, kudos)
    SELECT account, 'start', floor - kudos FROM balances WHERE kudos < floor;
INSERT INTO openings (account, kudos)
    SELECT account, floor - kudos FROM balances WHERE kudos < floor
    ON CONFLICT (account) DO UPDATE SET kudos = openings.kudos + excluded.kudos;
INSERT INTO openings (account, kudos)
    SELECT -1, CAST(COALESCE(SUM(kudos - floor), 0) AS BIGINT) FROM balances WHERE kudos < floor
    ON CONFLICT (account) DO UPDATE SET kudos = openings.kudos + excluded.kudos;
INSERT INTO balances (account, kudos)
    SELECT -1, CAST(COALESCE(SUM(kudos - floor), 0) AS BIGINT) FROM balances WHERE kudos < floor
    ON CONFLICT (account) DO UPDATE SET kudos = balances.kudos + excluded.kudos;
UPDATE balances SET kudos = floor WHERE kudos < floor;

-- What each account has asked for and made, ever, and how much of the former counts (in thousandths). Image work is in
-- thousands of pixelsteps.
CREATE TABLE records (
    account BIGINT PRIMARY KEY,
    multiplier BIGINT NOT NULL DEFAULT 1000,
    used_pixelsteps BIGINT NOT NULL DEFAULT 0,
    used_tokens BIGINT NOT NULL DEFAULT 0,
    made_pixelsteps BIGINT NOT NULL DEFAULT 0,
    made_tokens BIGINT NOT NULL DEFAULT 0,
    asked_images BIGINT NOT NULL DEFAULT 0,
    asked_texts BIGINT NOT NULL DEFAULT 0,
    asked_interrogations BIGINT NOT NULL DEFAULT 0,
    made_images BIGINT NOT NULL DEFAULT 0,
    made_texts BIGINT NOT NULL DEFAULT 0,
    made_interrogations BIGINT NOT NULL DEFAULT 0
);
