-- A key that belongs to a style is shown with it, so everybody knows it: from then on it works through styles only, also
-- when the style is gone.
ALTER TABLE shared_keys ADD COLUMN for_styles BIGINT NOT NULL DEFAULT 0;
CREATE INDEX styles_shared_key ON styles (shared_key);
