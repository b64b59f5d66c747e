-- Keeps posts, and shards them by the page on which they were written.
CREATE APPLICATION filterer;

CREATE CATEGORY actions (
    event_time bigint NOT NULL,
    author text NOT NULL,
    event_type text NOT NULL,
    event text NOT NULL,
    dim_id text NOT NULL,
    text text NOT NULL
)
WITH (key = 'author', time = 'event_time', buckets = 4);

CREATE TABLE posts WITH (key = 'dim_id', buckets = 4, out_of_orderness = '10 seconds') AS
SELECT event_time, event, dim_id, text
FROM actions
WHERE event_type = 'post';
