-- Accounts whose contents are deleted: jobs that end and uploads that come after it leave nothing behind either. A row
-- for each, until all that could still come has come.
CREATE TABLE erasures (
    account BIGINT PRIMARY KEY,
    at BIGINT NOT NULL
);
