-- What workers are told is kept in memory by every process, which reads it again when this rises.
INSERT INTO counters (name, value) VALUES ('messages', 0);
CREATE INDEX worker_messages_worker ON worker_messages (worker);
CREATE INDEX rigs_team ON rigs (team);
