-- Prompt filters. Pattern and type together are one filter.
CREATE TABLE filters (
    id {ID},
    regex TEXT NOT NULL,
    kind BIGINT NOT NULL,
    description TEXT,
    replacement TEXT NOT NULL,
    editor BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
);

-- Networks that are kept out for a while, such as 192.0.2.7 or 10.0.0.0/8.
CREATE TABLE timeouts (
    network TEXT PRIMARY KEY,
    until BIGINT NOT NULL
);

-- Prompts that were refused, by the network they came from. Kept for a day.
CREATE TABLE prompt_hits (
    id {ID},
    network TEXT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX prompt_hits_network ON prompt_hits (network);

-- Where each worker came from last.
CREATE TABLE worker_addresses (
    worker BIGINT PRIMARY KEY,
    address TEXT NOT NULL
);

-- Marks against accounts and their workers; worker 0 is none.
CREATE TABLE suspicions (
    id {ID},
    account BIGINT NOT NULL,
    worker BIGINT NOT NULL,
    reason TEXT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX suspicions_account ON suspicions (account);
CREATE INDEX suspicions_worker ON suspicions (worker);

-- Rise with every change of a filter or a timeout.
INSERT INTO counters (name, value) VALUES ('filters', 0), ('timeouts', 0);
