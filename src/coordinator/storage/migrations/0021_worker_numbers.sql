-- The number of a worker that is gone is no other's: marks, results and requests may still name it. The last that was
-- given out stands here.
INSERT INTO counters (name, value)
    SELECT 'workers', COALESCE(MAX(number), 0) FROM (
        SELECT MAX(id) AS number FROM workers
        UNION ALL SELECT MAX(worker) FROM results
        UNION ALL SELECT MAX(worker) FROM settled
        UNION ALL SELECT MAX(worker) FROM ledger
        UNION ALL SELECT MAX(worker) FROM suspicions
    ) AS known;
