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
