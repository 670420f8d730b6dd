-- What of a job's charge its requester did not have, and the house paid.
ALTER TABLE results ADD COLUMN forgiven BIGINT NOT NULL DEFAULT 0;
