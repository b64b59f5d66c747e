CREATE APPLICATION shop;

CREATE CATEGORY views (seen bigint, customer text, page text)
WITH (key = 'page', time = 'seen', buckets = 4, retention = '1 day');

CREATE TABLE views_per_page WITH (buckets = 4) AS
SELECT page, window_start, count(*) AS views
FROM views
GROUP BY page, tumble(seen, interval '1 minute');
