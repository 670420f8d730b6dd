-- What clients think of their images: one row for each image of a request that was rated. Nothing in it says whose it
-- was or what it shows.
CREATE TABLE ratings (
    job TEXT PRIMARY KEY,
    rating BIGINT,
    artifacts BIGINT,
    best BIGINT NOT NULL,
    at BIGINT NOT NULL
);
