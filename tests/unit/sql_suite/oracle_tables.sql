SET TimeZone = 'UTC';
SET threads = 1;
CREATE TABLE views (
    seen bigint, id bigint, customer text, page text, milliseconds double, weight bigint, price decimal(12, 3), happened timestamptz,
    born date, active boolean, payload json
);
CREATE TABLE orders (seen bigint, customer text, item text, cents bigint);
CREATE TABLE payments (seen bigint, customer text, item text, paid bigint);
CREATE TABLE items (seen bigint, item text, price bigint);
CREATE TABLE shelves AS SELECT * FROM read_csv('{folder}/shelves.csv');
CREATE VIEW pages_views AS SELECT * FROM views WHERE page IS NOT NULL;

-- Each row with the bounds of its windows, in milliseconds.
CREATE MACRO tumbled(table_name, size) AS TABLE
SELECT *, seen // size * size AS window_start, window_start + size AS window_end FROM query_table(table_name);

CREATE MACRO hopped(table_name, step, size) AS TABLE
SELECT *, unnest(range(seen // step * step - size + step, seen // step * step + step, step)) AS window_start, window_start + size AS window_end
FROM query_table(table_name);

CREATE MACRO sessions(table_name, key, gap) AS TABLE
WITH keyed AS (SELECT *, CASE key WHEN 'page' THEN page ELSE customer END AS of_key FROM query_table(table_name)),
marked AS (SELECT *, coalesce(seen - lag(seen) OVER (PARTITION BY of_key ORDER BY seen) >= gap, true) AS begins FROM keyed),
numbered AS (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY of_key ORDER BY seen ROWS UNBOUNDED PRECEDING) AS number FROM marked)
SELECT *, min(seen) OVER (PARTITION BY of_key, number) AS window_start, max(seen) OVER (PARTITION BY of_key, number) + gap AS window_end FROM numbered;
