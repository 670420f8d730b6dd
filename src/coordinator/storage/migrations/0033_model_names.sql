-- Further names of models, by which requests find them.
CREATE TABLE model_names (
    name TEXT PRIMARY KEY,
    model TEXT NOT NULL
);
