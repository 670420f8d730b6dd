-- The key itself, sealed under the server secret; `id` is a number that comes from both. Nothing stands here where an
-- earlier version has written the key into `id`: it is sealed at the next start.
ALTER TABLE shared_keys ADD COLUMN sealed TEXT;
