-- Where other coordinators of the database reach the one that leads; empty until it answers, or where it is reached by none.
ALTER TABLE coordinators ADD COLUMN address TEXT NOT NULL DEFAULT '';
