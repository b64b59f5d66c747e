-- case: within an interval around the event
SELECT o.seen, o.customer, o.item, p.paid FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen - interval '10 seconds' AND o.seen + interval '20 seconds'
-- oracle
SELECT o.seen, o.customer, o.item, p.paid FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen - 10000 AND o.seen + 20000
-- case: within an interval after the event
SELECT o.seen, o.customer, p.seen AS paid_at FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen >= o.seen AND p.seen <= o.seen + 30000
-- case: bounds that are excluded
SELECT o.seen, o.customer, p.seen AS paid_at FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen > o.seen AND p.seen < o.seen + 30000
-- case: at the same time
SELECT o.seen, o.customer, p.paid FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen = o.seen
-- case: with another condition
SELECT o.seen, o.customer, p.paid FROM orders o JOIN payments p ON o.customer = p.customer AND p.paid >= o.cents AND p.seen BETWEEN o.seen AND o.seen + 60000
-- case: by another column
SELECT o.seen, o.customer, p.customer AS payer FROM orders o JOIN payments p ON o.item = p.item AND p.seen BETWEEN o.seen AND o.seen + 20000
-- case: by two columns
SELECT o.seen, o.item, p.paid FROM orders o JOIN payments p ON o.customer = p.customer AND o.item = p.item AND p.seen BETWEEN o.seen - 30000 AND o.seen + 30000
-- case: by an expression
SELECT o.seen, o.customer, p.customer AS payer FROM orders o JOIN payments p ON upper(o.item) = upper(p.item) AND p.seen BETWEEN o.seen AND o.seen + 10000
-- case: with WHERE
SELECT o.seen, o.customer, o.cents - p.paid AS rest FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 60000 WHERE o.cents > p.paid AND o.item IS NOT NULL
-- case: all columns of one table
SELECT o.*, p.paid FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 15000
-- case: events without a match
SELECT o.seen, o.customer, o.item, p.paid FROM orders o LEFT JOIN payments p ON o.customer = p.customer AND p.paid > 3 AND p.seen BETWEEN o.seen AND o.seen + 20000
-- case: only events without a match
SELECT o.seen, o.customer, o.item FROM orders o LEFT JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 10000 WHERE p.seen IS NULL
-- case: events without a match by a column that can be NULL
SELECT o.seen, o.customer, o.item, p.customer AS payer FROM orders o LEFT JOIN payments p ON o.item = p.item AND p.seen BETWEEN o.seen AND o.seen + 10000
-- case: a table with itself
SELECT a.seen, a.customer, b.seen AS next_at FROM orders a JOIN orders b ON a.customer = b.customer AND b.seen > a.seen AND b.seen <= a.seen + 20000
-- case: an aggregate of a join
SELECT o.item, count(*) AS pairs, sum(p.paid) AS paid FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 60000
GROUP BY o.item, tumble(o.seen, interval '1 minute')
-- oracle
SELECT o.item, count(*) AS pairs, sum(p.paid) AS paid, o.seen // 60000 * 60000 AS window_start
FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 60000 GROUP BY o.item, 4
-- case: a join of named queries
WITH big AS (SELECT seen, customer, cents FROM orders WHERE cents > 1), paid AS (SELECT seen, customer, paid FROM payments WHERE paid > 1)
SELECT b.seen, b.customer, b.cents, p.paid FROM big b JOIN paid p ON b.customer = p.customer AND p.seen BETWEEN b.seen AND b.seen + 60000
-- case: the latest row of a table at the event time
SELECT o.seen, o.customer, o.item, i.price FROM orders o JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.item = i.item
-- oracle
SELECT o.seen, o.customer, o.item, i.price FROM orders o ASOF JOIN items i ON o.item = i.item AND o.seen >= i.seen
-- case: events without a row of a table
SELECT o.seen, o.customer, o.item, coalesce(i.price, -1) AS price FROM orders o LEFT JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.item = i.item
-- oracle
SELECT o.seen, o.customer, o.item, coalesce(i.price, -1) AS price FROM orders o ASOF LEFT JOIN items i ON o.item = i.item AND o.seen >= i.seen
-- case: a table with a condition
SELECT o.seen, o.customer, o.cents * i.price AS total FROM orders o JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.item = i.item AND i.price > 2 WHERE o.cents > 1
-- oracle
SELECT o.seen, o.customer, o.cents * i.price AS total FROM (SELECT * FROM orders o ASOF JOIN items i ON o.item = i.item AND o.seen >= i.seen) AS j (seen, customer, item, cents, s, i, price),
    LATERAL (SELECT j.seen, j.customer, j.cents) AS o (seen, customer, cents), LATERAL (SELECT j.price) AS i (price) WHERE i.price > 2 AND o.cents > 1
-- case: an aggregate of a table join
SELECT i.price, count(*) AS orders, sum(o.cents) AS cents FROM orders o JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.item = i.item GROUP BY i.price, tumble(o.seen, interval '2 minutes')
-- oracle
SELECT i.price, count(*) AS orders, sum(o.cents) AS cents, o.seen // 120000 * 120000 AS window_start FROM orders o ASOF JOIN items i ON o.item = i.item AND o.seen >= i.seen GROUP BY i.price, 4
-- case: a stream and two tables
SELECT o.seen, o.customer, i.price, j.price AS paid_price FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 10000
JOIN items FOR SYSTEM_TIME AS OF o.seen AS i ON o.item = i.item LEFT JOIN items FOR SYSTEM_TIME AS OF o.seen AS j ON p.item = j.item
-- oracle
SELECT o.seen, o.customer, i.price, j.price AS paid_price FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen BETWEEN o.seen AND o.seen + 10000
ASOF JOIN items i ON o.item = i.item AND o.seen >= i.seen ASOF LEFT JOIN items j ON p.item = j.item AND o.seen >= j.seen
-- case: rows of a file
SELECT o.seen, o.customer, o.item, s.shelf FROM orders o JOIN shelves s ON o.item = s.item
-- case: events without a row of a file
SELECT o.seen, o.customer, o.item, s.shelf FROM orders o LEFT JOIN shelves s ON o.item = s.item AND s.shelf > 1
-- case: an aggregate of rows of a file
SELECT s.shelf, count(*) AS orders, max(o.seen) AS seen FROM orders o JOIN shelves s ON o.item = s.item GROUP BY s.shelf
-- case: only events with a row of a file
SELECT * FROM orders WHERE item IN (SELECT item FROM shelves) AND cents > 1
-- case: only events with some rows of a file
SELECT seen, customer, item FROM orders WHERE item IN (SELECT s.item FROM shelves AS s WHERE shelf > 1 AND s.shelf < cents + 9)
-- case: only events without a row of a file
SELECT seen, customer, item FROM orders WHERE item NOT IN (SELECT item FROM shelves WHERE shelf < 2) AND cents >= 0
-- case: only events for which no row of a file exists, also with NULL
SELECT o.seen, o.customer, o.item FROM orders o WHERE NOT EXISTS (SELECT 1 FROM shelves s WHERE s.item = o.item)
-- case: an aggregate of events with a row of a file
SELECT item, count(*) AS orders, sum(cents) AS cents, max(seen) AS seen FROM orders WHERE EXISTS (SELECT * FROM shelves WHERE shelves.item = orders.item) GROUP BY item
-- case: two conditions on rows of a file, and a join
SELECT o.seen, o.item, s.shelf FROM orders o JOIN shelves s ON o.item = s.item
WHERE o.item IN (SELECT item FROM shelves WHERE shelf = 2) AND o.customer NOT IN (SELECT item FROM shelves)
-- case: only events with a row of a table at the event time
SELECT seen, customer, item FROM orders WHERE item IN (SELECT item FROM items FOR SYSTEM_TIME AS OF seen WHERE price > 2)
-- oracle
SELECT o.seen, o.customer, o.item FROM orders o ASOF JOIN items i ON o.item = i.item AND o.seen >= i.seen WHERE i.price > 2
-- case: only events without a row of a table at the event time
SELECT seen, customer, item FROM orders o WHERE NOT EXISTS (SELECT 1 FROM items FOR SYSTEM_TIME AS OF o.seen AS i WHERE i.item = o.item AND i.price > 2)
-- oracle
SELECT o.seen, o.customer, o.item FROM orders o ASOF LEFT JOIN items i ON o.item = i.item AND o.seen >= i.seen WHERE i.price IS NULL OR i.price <= 2
-- case: equal bounds
SELECT o.seen, o.customer, o.cents, p.paid FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen AND o.seen
-- case: bounds that differ by an excluded end
SELECT o.seen, o.customer, p.paid FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen >= o.seen + interval '20 seconds' AND p.seen < o.seen + interval '30 seconds'
-- oracle
SELECT o.seen, o.customer, p.paid FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen >= o.seen + 20000 AND p.seen < o.seen + 30000
-- case: both bounds at the distance of an event
SELECT o.seen, p.seen AS paid_at, o.customer FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen + interval '20 seconds' AND o.seen + interval '30 seconds'
-- oracle
SELECT o.seen, p.seen AS paid_at, o.customer FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen + 20000 AND o.seen + 30000
-- case: bounds of several intervals
SELECT o.seen, p.seen AS paid_at, o.customer FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen + 2 * interval '10 seconds' AND o.seen + (interval '1 minute' - interval '30 seconds')
-- oracle
SELECT o.seen, p.seen AS paid_at, o.customer FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen + 20000 AND o.seen + 30000
-- case: a key that can be NULL matches nothing
SELECT o.seen, o.item, p.item AS paid_item FROM orders o LEFT JOIN payments p ON p.item = o.item AND p.seen BETWEEN o.seen AND o.seen + interval '1 minute'
-- oracle
SELECT o.seen, o.item, p.item AS paid_item FROM orders o LEFT JOIN payments p ON p.item = o.item AND p.seen BETWEEN o.seen AND o.seen + 60000
-- case: a join in an aggregate with HAVING and FILTER
SELECT o.customer, count(*) AS pairs, count(*) FILTER (WHERE p.paid >= o.cents) AS enough, max(o.seen) AS seen FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen AND o.seen + interval '1 minute' GROUP BY o.customer HAVING count(*) > 2
-- oracle
SELECT o.customer, count(*) AS pairs, count(*) FILTER (WHERE p.paid >= o.cents) AS enough, max(o.seen) AS seen FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen AND o.seen + 60000 GROUP BY o.customer HAVING count(*) > 2
-- case: columns of both tables with the same name
SELECT o.seen, o.item AS "item", p.item AS "Item", p.seen AS at FROM orders o JOIN payments p ON p.customer = o.customer AND p.seen = o.seen
-- case: WHERE of the side that can be NULL excludes events without a match
SELECT o.seen, o.customer, p.paid FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen AND o.seen + interval '30 seconds' WHERE p.paid > 1
-- oracle
SELECT o.seen, o.customer, p.paid FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen AND o.seen + 30000 WHERE p.paid > 1
-- case: a condition on the left table in ON keeps its events
SELECT o.seen, o.customer, o.cents, p.paid FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND o.cents > 2 AND p.seen BETWEEN o.seen AND o.seen + interval '10 seconds'
-- oracle
SELECT o.seen, o.customer, o.cents, p.paid FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND o.cents > 2 AND p.seen BETWEEN o.seen AND o.seen + 10000
-- case: CASE and coalesce of a side without a match
SELECT o.seen, o.customer, coalesce(p.paid, -1) AS paid, CASE WHEN p.paid IS NULL THEN 'none' WHEN p.paid >= o.cents THEN 'all' ELSE 'part' END AS state FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND p.item = o.item AND p.seen BETWEEN o.seen - interval '20 seconds' AND o.seen + interval '20 seconds'
-- oracle
SELECT o.seen, o.customer, coalesce(p.paid, -1) AS paid, CASE WHEN p.paid IS NULL THEN 'none' WHEN p.paid >= o.cents THEN 'all' ELSE 'part' END AS state FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND p.item = o.item AND p.seen BETWEEN o.seen - 20000 AND o.seen + 20000
-- case: a join whose bounds are both before the event
SELECT o.seen, p.seen AS paid_at, o.customer FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen > o.seen - interval '60 seconds' AND p.seen <= o.seen - interval '10 seconds'
-- oracle
SELECT o.seen, p.seen AS paid_at, o.customer FROM orders o JOIN payments p ON o.customer = p.customer AND p.seen > o.seen - 60000 AND p.seen <= o.seen - 10000
-- case: a table with a row of another time, and a file
SELECT v.seen, v.item, i.price, s.shelf FROM orders v LEFT JOIN items FOR SYSTEM_TIME AS OF v.seen AS i ON i.item = v.item LEFT JOIN shelves s ON s.item = v.item WHERE v.cents > 1
-- oracle
SELECT v.seen, v.item, (SELECT i.price FROM items i WHERE i.item = v.item AND i.seen <= v.seen ORDER BY i.seen DESC LIMIT 1) AS price, s.shelf FROM orders v LEFT JOIN shelves s ON s.item = v.item WHERE v.cents > 1
-- case: NOT IN of a file with a condition
SELECT seen, customer, item FROM orders WHERE item NOT IN (SELECT item FROM shelves WHERE shelf > 1) AND cents > 0
-- oracle
SELECT seen, customer, item FROM orders WHERE item IS NOT NULL AND NOT EXISTS (SELECT 1 FROM shelves s WHERE s.item = orders.item AND shelf > 1) AND cents > 0
