-- case: one column
SELECT DISTINCT page FROM views
-- oracle
SELECT page, first(seen ORDER BY rowid) AS seen FROM views GROUP BY page
-- case: several columns, also NULL
SELECT DISTINCT page, active, weight > 2 AS heavy FROM views
-- oracle
SELECT page, active, weight > 2 AS heavy, first(seen ORDER BY rowid) AS seen FROM views GROUP BY ALL
-- case: the event time is part of the row
SELECT DISTINCT seen, customer FROM orders
-- case: the event time under another name
SELECT DISTINCT seen AS at, customer FROM payments
-- case: expressions and WHERE
SELECT DISTINCT upper(customer) AS name, milliseconds FROM views WHERE milliseconds > 5 AND page IS NOT NULL
-- oracle
SELECT upper(customer) AS name, milliseconds, first(seen ORDER BY rowid) AS seen FROM views WHERE milliseconds > 5 AND page IS NOT NULL GROUP BY ALL
-- case: times and dates
SELECT DISTINCT date_trunc('hour', happened) AS hour, born FROM views
-- oracle
SELECT date_trunc('hour', happened) AS hour, born, first(seen ORDER BY rowid) AS seen FROM views GROUP BY ALL
-- case: rows of a join
SELECT DISTINCT o.seen, o.customer, p.item FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 60000
-- case: a union
SELECT DISTINCT seen, customer FROM (SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments) AS all_events
-- case: an aggregate of distinct rows
SELECT customer, count(*) AS pages FROM (SELECT DISTINCT customer, page FROM views) AS visited GROUP BY customer
-- oracle
SELECT customer, count(*) AS pages, max(seen) AS seen FROM (SELECT customer, page, first(seen ORDER BY rowid) AS seen FROM views GROUP BY ALL) GROUP BY customer
-- case: rows of a window
SELECT DISTINCT page FROM views [1 minutes]
-- oracle
SELECT DISTINCT page, window_start FROM tumbled('views', 60000)
-- case: rows of a window at its close
SELECT DISTINCT customer, weight % 2 AS odd FROM views [2 minutes] EMIT ON WINDOW CLOSE
-- oracle
SELECT DISTINCT customer, weight % 2 AS odd, window_start FROM tumbled('views', 120000)
-- case: equal decimals and doubles of different digits
SELECT DISTINCT price, abs(milliseconds) * -1 AS below FROM views WHERE milliseconds < 3
-- oracle
SELECT price, abs(milliseconds) * -1 AS below, first(seen ORDER BY rowid) AS seen FROM views WHERE milliseconds < 3 GROUP BY ALL
-- case: rows with NULL and CASE
SELECT DISTINCT seen, CASE WHEN active THEN page END AS page, active FROM views
-- case: rows of UNION ALL
SELECT DISTINCT seen, customer FROM (SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments) AS both
-- oracle
SELECT DISTINCT seen, customer FROM (SELECT seen, customer FROM orders UNION ALL SELECT seen, customer FROM payments) AS joined
