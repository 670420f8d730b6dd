-- By what operators name an account: unique, and never changed by its user, whatever the account calls itself. Nothing
-- stands here for an account that an older version has made since.
ALTER TABLE accounts ADD COLUMN login TEXT;
UPDATE accounts SET login = 'user-' || CAST(id AS TEXT) WHERE id > 0;
-- The oldest account of a name keeps the name as its login, if it can be one (`accounts/login.rs`).
UPDATE accounts SET login = lower(name) WHERE id IN (
    SELECT MIN(id) FROM accounts
    WHERE id > 0
        AND length(name) <= 64
        AND ltrim(name, 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-') = ''
        AND ltrim(substr(name, 1, 1), 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ') = ''
        AND name <> ''
        AND lower(name) NOT IN ('admin', 'anonymous', 'deleted', 'house')
        AND lower(name) NOT LIKE 'user-%'
    GROUP BY lower(name)
);
-- Users may have taken the name of the administrator after it was changed: the role decides.
UPDATE accounts SET login = 'admin' WHERE id = (
    SELECT MIN(id) FROM accounts
    WHERE id > 0 AND name IN ('admin', 'Admin', 'ADMIN') AND ' ' || roles || ' ' LIKE '% admin %'
);
CREATE UNIQUE INDEX accounts_login ON accounts (login);
