-- Keeps posts with a hashtag, and shards them by it.
CREATE APPLICATION chorus_filter;

CREATE CATEGORY posts (
    at bigint NOT NULL,
    author text NOT NULL,
    text text NOT NULL
)
WITH (key = 'author', time = 'at', buckets = 2);

CREATE TABLE tagged_posts WITH (key = 'tag', buckets = 2, out_of_orderness = '1 second') AS
SELECT at, author, text, coalesce(regexp_substr(text, '#[A-Z]+'), '') AS tag
FROM posts
WHERE text LIKE '%#%';
