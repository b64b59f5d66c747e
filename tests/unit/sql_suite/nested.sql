-- case: UNION ALL of two tables
SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments
-- case: UNION ALL of a table with itself
SELECT seen, page FROM views WHERE weight > 1 UNION ALL SELECT seen, page FROM views WHERE weight > 3
-- case: UNION ALL takes the names of the first branch
SELECT seen, item AS name, cents AS amount FROM orders UNION ALL SELECT seen, customer, paid FROM payments WHERE paid > 2
-- case: UNION ALL of three branches
SELECT seen, customer, 'order' AS kind FROM orders UNION ALL SELECT seen, customer, 'payment' FROM payments UNION ALL SELECT seen, customer, 'view' FROM views WHERE active
-- case: UNION ALL in parentheses
(SELECT seen, item FROM orders WHERE cents > 2) UNION ALL (SELECT seen, item FROM payments WHERE paid IS NOT NULL)
-- case: a branch can be NULL
SELECT seen, item FROM items UNION ALL SELECT seen, item FROM orders
-- case: a named query
WITH heavy AS (SELECT seen, id, weight FROM views WHERE weight > 2) SELECT seen, id, weight * 2 AS twice FROM heavy
-- case: named queries on top of each other
WITH heavy AS (SELECT seen, id, weight * 2 AS twice FROM views WHERE weight > 0), heavier AS (SELECT * FROM heavy WHERE twice > 6) SELECT seen, id, twice + 1 AS more FROM heavier
-- case: a named query that is read twice
WITH heavy AS (SELECT seen, id, weight FROM views WHERE weight > 2) SELECT seen, id FROM heavy UNION ALL SELECT seen, weight FROM heavy
-- case: a query in FROM
SELECT seen, id, size FROM (SELECT seen, id, length(page) AS size FROM views) AS sizes WHERE size > 1
-- case: queries in FROM on top of each other
SELECT seen, more FROM (SELECT seen, size + 1 AS more FROM (SELECT seen, length(page) AS size FROM views) AS a WHERE size > 0) AS b
-- case: an aggregate of a named query
WITH pages AS (SELECT seen, customer, upper(page) AS page FROM views WHERE page IS NOT NULL) SELECT page, count(*) AS views, max(seen) AS seen FROM pages GROUP BY page
-- case: an aggregate of UNION ALL
WITH all_events AS (SELECT seen, customer, cents AS amount FROM orders UNION ALL SELECT seen, customer, -paid FROM payments)
SELECT customer, sum(amount) AS balance, count(*) AS events, max(seen) AS seen FROM all_events GROUP BY customer
-- case: a window of UNION ALL
WITH all_events AS (SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments)
SELECT customer, window_start, count(*) AS events FROM all_events GROUP BY customer, tumble(seen, interval '1 minute') EMIT ON WINDOW CLOSE
-- oracle
SELECT customer, window_start, count(*) AS events FROM (SELECT *, seen // 60000 * 60000 AS window_start FROM (SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments))
GROUP BY customer, window_start
-- case: an aggregate of an aggregate
WITH per_minute AS (SELECT customer, window_start, count(*) AS views FROM views GROUP BY customer, tumble(seen, interval '1 minute'))
SELECT customer, max(views) AS most, count(*) AS minutes FROM per_minute GROUP BY customer, tumble(window_start, interval '3 minutes') EMIT ON WINDOW CLOSE
-- oracle
WITH per_minute AS (SELECT customer, window_start AS minute, count(*) AS views FROM tumbled('views', 60000) GROUP BY customer, window_start)
SELECT customer, max(views) AS most, count(*) AS minutes, minute // 180000 * 180000 AS window_start FROM per_minute GROUP BY customer, 4
-- case: a filter of an aggregate
SELECT page, views, window_start FROM (SELECT page, window_start, count(*) AS views FROM views GROUP BY page, tumble(seen, interval '1 minute')) AS counted WHERE views > 1
-- oracle
SELECT page, count(*) AS views, window_start FROM tumbled('views', 60000) GROUP BY page, window_start HAVING count(*) > 1
-- case: an aggregate of sessions
WITH visits AS (SELECT customer, window_end, count(*) AS views FROM views GROUP BY customer, session(seen, interval '10 seconds'))
SELECT customer, count(*) AS visits, sum(views) AS views, max(window_end) AS window_end FROM visits GROUP BY customer
-- oracle
WITH visits AS (SELECT customer, window_end, count(*) AS views FROM sessions('views', 'customer', 10000) GROUP BY customer, window_start, window_end)
SELECT customer, count(*) AS visits, sum(views) AS views, max(window_end) AS window_end FROM visits GROUP BY customer
-- case: UNION ALL with columns in another order takes them by place
SELECT seen, customer, item FROM orders UNION ALL SELECT seen, item, customer FROM payments
-- oracle
SELECT seen, customer, item FROM orders UNION ALL SELECT seen, item, customer FROM payments
-- case: named queries that shadow each other's columns
WITH a AS (SELECT seen, id, weight AS w, page FROM views WHERE weight > 0), b AS (SELECT seen, id, w + 1 AS w FROM a WHERE page IS NOT NULL), c AS (SELECT seen, id, w * 2 AS w FROM b) SELECT seen, id, w FROM c WHERE w > 6
-- case: a named query with the name of a column
WITH page AS (SELECT seen, id, page FROM views) SELECT seen, id, page.page FROM page
-- case: a named query within a query in FROM
SELECT seen, n FROM (WITH inside AS (SELECT seen, id + 1 AS n FROM views) SELECT seen, n FROM inside WHERE n > 5) AS outside WHERE n < 30
-- case: UNION ALL of a named query with itself and with a window
WITH both AS (SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments WHERE paid > 2)
SELECT customer, window_start, count(*) AS events FROM both GROUP BY customer, tumble(seen, interval '1 minute')
-- oracle
WITH joined AS (SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments WHERE paid > 2)
SELECT customer, seen // 60000 * 60000 AS window_start, count(*) AS events FROM joined GROUP BY customer, 2
-- case: windows of windows
WITH minutes AS (SELECT customer, window_start, count(*) AS views, max(weight) AS weight FROM views GROUP BY customer, tumble(seen, interval '30 seconds'))
SELECT window_start, sum(views) AS views, count(*) AS groups, max(weight) AS weight FROM minutes GROUP BY tumble(window_start, interval '2 minutes')
-- oracle
WITH minutes AS (SELECT customer, seen // 30000 * 30000 AS begun, count(*) AS views, max(weight) AS weight FROM views GROUP BY customer, 2)
SELECT begun // 120000 * 120000 AS window_start, sum(views) AS views, count(*) AS groups, max(weight) AS weight FROM minutes GROUP BY 1
-- case: a filter above HAVING
SELECT window_start, page, n FROM (SELECT page, window_start, count(*) AS n FROM views GROUP BY page, tumble(seen, interval '1 minute') HAVING count(*) < 4) AS counted WHERE n > 1
-- oracle
SELECT window_start, page, count(*) AS n FROM tumbled('views', 60000) GROUP BY page, window_start HAVING n < 4 AND n > 1
-- case: UNION ALL of constants that name the branch
SELECT seen, customer, 'order' AS kind, cents AS amount FROM orders UNION ALL SELECT seen, customer, 'payment', -paid FROM payments UNION ALL SELECT seen, customer, 'view', NULL FROM views WHERE id < 9
-- case: a window of UNION ALL with conditions of the branches
WITH events AS (SELECT seen, customer, 1 AS paid FROM payments WHERE paid > 0 UNION ALL SELECT seen, customer, 0 FROM orders)
SELECT customer, window_start, sum(paid) AS paid, count(*) - sum(paid) AS ordered, avg(paid) AS share FROM events GROUP BY customer, tumble(seen, interval '90 seconds') HAVING count(*) > 1
-- oracle
WITH joined AS (SELECT seen, customer, 1 AS paid FROM payments WHERE paid > 0 UNION ALL SELECT seen, customer, 0 FROM orders)
SELECT customer, seen // 90000 * 90000 AS window_start, sum(paid) AS paid, count(*) - sum(paid) AS ordered, avg(paid) AS share FROM joined GROUP BY customer, 2 HAVING count(*) > 1
-- case: a join of a named aggregate with a stream
WITH busy AS (SELECT customer, window_start, count(*) AS views FROM views GROUP BY customer, tumble(seen, interval '1 minute') HAVING count(*) > 2)
SELECT o.seen, o.customer, b.views FROM orders o JOIN busy b ON b.customer = o.customer AND b.window_start BETWEEN o.seen - interval '1 minute' AND o.seen
-- oracle
SELECT o.seen, o.customer, b.views FROM orders o JOIN (SELECT customer, seen // 60000 * 60000 AS window_start, count(*) AS views FROM views GROUP BY customer, 2 HAVING count(*) > 2) b ON b.customer = o.customer AND b.window_start BETWEEN o.seen - 60000 AND o.seen
-- case: distinct values of a named query
WITH rows AS (SELECT seen, customer, coalesce(page, 'none') AS page FROM views WHERE weight > 0)
SELECT count(DISTINCT page) AS pages, count(DISTINCT customer) AS customers, window_start FROM rows GROUP BY tumble(seen, interval '2 minutes')
-- oracle
SELECT count(DISTINCT coalesce(page, 'none')) AS pages, count(DISTINCT customer) AS customers, window_start FROM tumbled('views', 120000) WHERE weight > 0 GROUP BY window_start
-- case: named queries that are not read
WITH used AS (SELECT seen, id FROM views), unused AS (SELECT seen, page FROM views) SELECT seen, id FROM used WHERE id > 5
