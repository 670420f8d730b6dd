-- The modes of the service. Every change raises the counter, so that other processes notice.
CREATE TABLE modes (
    name TEXT PRIMARY KEY,
    is_on BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('modes', 0);
