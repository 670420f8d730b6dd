-- What a request costs at once, beside its jobs.
ALTER TABLE requests ADD COLUMN fee BIGINT NOT NULL DEFAULT 0;
