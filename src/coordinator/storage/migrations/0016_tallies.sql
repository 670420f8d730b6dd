-- Gifts are tallied by whether they were given or received, which their sum does not tell. What the ledger still holds
-- of them is told apart; what has gone into opening balances stays in the sum.
INSERT INTO tallies (account, cause, kudos)
    SELECT account, 'gifted', CAST(SUM(amount) AS BIGINT) FROM ledger
    WHERE reason = 'transfer' AND amount < 0 GROUP BY account;
INSERT INTO tallies (account, cause, kudos)
    SELECT account, 'donated', CAST(SUM(amount) AS BIGINT) FROM ledger
    WHERE reason = 'donation' AND amount < 0 GROUP BY account;
INSERT INTO tallies (account, cause, kudos)
    SELECT account, 'received', CAST(SUM(amount) AS BIGINT) FROM ledger
    WHERE reason IN ('transfer', 'donation') AND amount > 0 GROUP BY account;
UPDATE tallies SET kudos = kudos - (
    SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM ledger
    WHERE ledger.account = tallies.account AND ledger.reason = tallies.cause
) WHERE cause IN ('transfer', 'donation');
