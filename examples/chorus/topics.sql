-- Turns airports into topics: the hashtag of each, its name and its region. Laser serves them.
CREATE APPLICATION chorus_topics;

CREATE CATEGORY airports (
    code text NOT NULL,
    at bigint NOT NULL,
    name text NOT NULL,
    zone text NOT NULL
)
WITH (key = 'code', time = 'at', buckets = 2);

CREATE TABLE topics WITH (key = 'tag', buckets = 2) AS
SELECT '#' || code AS tag, at, name AS topic, replace(split_part(zone, '/', 2), '_', ' ') AS region
FROM airports;
