-- Besides what was made: what workers were paid for it, how jobs ended, and how long those that were delivered took
-- from their acceptance. `first_ms` is the sum over `firsts` jobs whose first output was seen; `failed` counts the
-- jobs that workers failed.
ALTER TABLE made ADD COLUMN reward BIGINT NOT NULL DEFAULT 0;
ALTER TABLE made ADD COLUMN delivered BIGINT NOT NULL DEFAULT 0;
ALTER TABLE made ADD COLUMN failed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE made ADD COLUMN firsts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE made ADD COLUMN first_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE made ADD COLUMN total_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN reward BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN delivered BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN failed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN firsts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN first_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN total_ms BIGINT NOT NULL DEFAULT 0;

-- Jobs that are remembered from before count, by the hour they ended in; they are soon folded like all others.
INSERT INTO made (kind, model, at, outputs, size, done, busy_ms, reward, delivered, failed, firsts, first_ms, total_ms)
    SELECT kind, model, ended, 0, 0, 0, 0,
        CAST(SUM(reward) AS BIGINT),
        CAST(SUM(CASE WHEN state = 'delivered' THEN 1 ELSE 0 END) AS BIGINT),
        CAST(SUM(CASE WHEN reason IN ('worker_failed', 'worker_lost', 'empty_result', 'worker_stalled')
            THEN 1 ELSE 0 END) AS BIGINT),
        CAST(SUM(CASE WHEN state = 'delivered' AND first_output_ms IS NOT NULL THEN 1 ELSE 0 END) AS BIGINT),
        CAST(SUM(CASE WHEN state = 'delivered' THEN COALESCE(first_output_ms, 0) ELSE 0 END) AS BIGINT),
        CAST(SUM(CASE WHEN state = 'delivered' THEN total_ms ELSE 0 END) AS BIGINT)
    FROM (
        SELECT kind, model, state, reason, reward, first_output_ms, total_ms,
            (accepted_at + total_ms) / 3600000 * 3600000 AS ended
        FROM settled
    ) AS jobs GROUP BY kind, model, ended;
