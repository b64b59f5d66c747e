-- case: a window for each minute
SELECT page, window_start, count(*) AS views FROM views GROUP BY page, tumble(seen, interval '1 minute')
-- oracle
SELECT page, window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY page, window_start
-- case: a window for each minute of the key
SELECT customer, window_start, window_end, sum(weight) AS weight FROM views GROUP BY customer, tumble(seen, interval '1 minute')
-- oracle
SELECT customer, window_start, window_end, sum(weight) AS weight FROM tumbled('views', 60000) GROUP BY customer, window_start, window_end
-- case: a window of twice an interval
SELECT page, window_start, count(*) AS views FROM views GROUP BY page, tumble(seen, 2 * interval '30 seconds')
-- oracle
SELECT page, window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY page, window_start
-- case: the window in brackets
SELECT customer, count(*) AS views FROM views [2 minutes] GROUP BY customer
-- oracle
SELECT customer, count(*) AS views, window_start FROM tumbled('views', 120000) GROUP BY customer, window_start
-- case: a window of all
SELECT count(*) AS views, avg(milliseconds) AS mean FROM views GROUP BY tumble(seen, interval '90 seconds')
-- oracle
SELECT count(*) AS views, avg(milliseconds) AS mean, window_start FROM tumbled('views', 90000) GROUP BY window_start
-- case: windows with WHERE and FILTER
SELECT page, count(*) AS views, count(*) FILTER (WHERE active) AS active_ones FROM views WHERE weight > 0 GROUP BY page, tumble(seen, interval '1 minute')
-- oracle
SELECT page, count(*) AS views, count(*) FILTER (WHERE active) AS active_ones, window_start FROM tumbled('views', 60000) WHERE weight > 0 GROUP BY page, window_start
-- case: windows at their close
SELECT page, window_start, count(*) AS views FROM views GROUP BY page, tumble(seen, interval '1 minute') EMIT ON WINDOW CLOSE
-- oracle
SELECT page, window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY page, window_start
-- case: windows at their close with HAVING
SELECT customer, count(*) AS views FROM views GROUP BY customer, tumble(seen, interval '1 minute') HAVING count(*) < 4 AND sum(weight) IS NOT NULL EMIT ON WINDOW CLOSE
-- oracle
SELECT customer, count(*) AS views, window_start FROM tumbled('views', 60000) GROUP BY customer, window_start HAVING count(*) < 4 AND sum(weight) IS NOT NULL
-- case: windows after a delay
SELECT page, count(*) AS views FROM views GROUP BY page, tumble(seen, interval '1 minute') EMIT AFTER WATERMARK WITH DELAY interval '30 seconds'
-- oracle
SELECT page, count(*) AS views, window_start FROM tumbled('views', 60000) GROUP BY page, window_start
-- case: windows written at an interval
SELECT customer, count(*) AS views, max(page) AS last_page FROM views GROUP BY customer, tumble(seen, interval '1 minute') EMIT EVERY interval '10 seconds'
-- oracle
SELECT customer, count(*) AS views, max(page) AS last_page, window_start FROM tumbled('views', 60000) GROUP BY customer, window_start
-- case: windows with changes
SELECT customer, min(milliseconds) AS least FROM views GROUP BY customer, tumble(seen, interval '1 minute') EMIT CHANGES
-- oracle
SELECT customer, min(milliseconds) AS least, window_start FROM tumbled('views', 60000) GROUP BY customer, window_start
-- case: distinct values of a window
SELECT page, count(DISTINCT customer) AS customers, count(DISTINCT weight) AS weights FROM views GROUP BY page, tumble(seen, interval '2 minutes')
-- oracle
SELECT page, count(DISTINCT customer) AS customers, count(DISTINCT weight) AS weights, window_start FROM tumbled('views', 120000) GROUP BY page, window_start
-- case: distinct dates, times and booleans of a window
SELECT customer, count(DISTINCT born) AS dates, count(DISTINCT happened) AS times, count(DISTINCT active) AS kinds FROM views GROUP BY customer, tumble(seen, interval '2 minutes')
-- oracle
SELECT customer, count(DISTINCT born) AS dates, count(DISTINCT happened) AS times, count(DISTINCT active) AS kinds, window_start FROM tumbled('views', 120000) GROUP BY customer, window_start
-- case: spreads of a window
SELECT page, stddev(milliseconds) AS deviation, var_pop(weight) AS spread FROM views GROUP BY page, tumble(seen, interval '3 minutes')
-- oracle
SELECT page, stddev(milliseconds) AS deviation, var_pop(weight) AS spread, window_start FROM tumbled('views', 180000) GROUP BY page, window_start
-- case: expressions of the bounds
SELECT customer, window_start / 1000 AS start_s, window_end - window_start AS size, count(*) AS views FROM views GROUP BY customer, tumble(seen, interval '1 minute')
-- oracle
SELECT customer, window_start // 1000 AS start_s, window_end - window_start AS size, count(*) AS views, window_start FROM tumbled('views', 60000) GROUP BY customer, window_start, window_end
-- case: windows of several columns
SELECT customer, page, active, window_start, count(*) AS views FROM views GROUP BY customer, page, active, tumble(seen, interval '3 minutes')
-- oracle
SELECT customer, page, active, window_start, count(*) AS views FROM tumbled('views', 180000) GROUP BY customer, page, active, window_start
-- case: overlapping windows
SELECT page, window_start, window_end, count(*) AS views FROM views GROUP BY page, hop(seen, interval '30 seconds', interval '1 minute')
-- oracle
SELECT page, window_start, window_end, count(*) AS views FROM hopped('views', 30000, 60000) GROUP BY page, window_start, window_end
-- case: overlapping windows of the key
SELECT customer, window_start, sum(weight) AS weight, min(page) AS page FROM views GROUP BY customer, hop(seen, interval '1 minute', interval '3 minutes')
-- oracle
SELECT customer, window_start, sum(weight) AS weight, min(page) AS page FROM hopped('views', 60000, 180000) GROUP BY customer, window_start
-- case: overlapping windows at their close
SELECT page, window_start, count(*) AS views, max(milliseconds) AS most FROM views GROUP BY page, hop(seen, interval '20 seconds', interval '1 minute') EMIT ON WINDOW CLOSE
-- oracle
SELECT page, window_start, count(*) AS views, max(milliseconds) AS most FROM hopped('views', 20000, 60000) GROUP BY page, window_start
-- case: overlapping windows with distinct values
SELECT window_start, count(DISTINCT customer) AS customers, sum(price) AS total FROM views GROUP BY hop(seen, interval '1 minute', interval '2 minutes')
-- oracle
SELECT window_start, count(DISTINCT customer) AS customers, sum(price) AS total FROM hopped('views', 60000, 120000) GROUP BY window_start
-- case: windows with gaps between them
SELECT customer, window_start, count(*) AS views FROM views GROUP BY customer, hop(seen, interval '1 minute', interval '1 minute')
-- oracle
SELECT customer, window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY customer, window_start
-- case: sessions of the key
SELECT customer, window_start, window_end, count(*) AS views FROM views GROUP BY customer, session(seen, interval '10 seconds')
-- oracle
SELECT customer, window_start, window_end, count(*) AS views FROM sessions('views', 'customer', 10000) GROUP BY customer, window_start, window_end
-- case: sessions of another column
SELECT page, window_end, count(*) AS views, sum(weight) AS weight, max(customer) AS customer FROM views GROUP BY page, session(seen, interval '5 seconds')
-- oracle
SELECT page, window_end, count(*) AS views, sum(weight) AS weight, max(customer) AS customer FROM sessions('views', 'page', 5000) GROUP BY page, window_start, window_end
-- case: sessions with distinct values and HAVING
SELECT customer, window_end, count(DISTINCT page) AS pages FROM views GROUP BY customer, session(seen, interval '20 seconds') HAVING count(*) > 1
-- oracle
SELECT customer, window_end, count(DISTINCT page) AS pages FROM sessions('views', 'customer', 20000) GROUP BY customer, window_start, window_end HAVING count(*) > 1
-- case: sessions with WHERE
SELECT customer, window_start, window_end, avg(milliseconds) AS mean FROM views WHERE page IS NOT NULL GROUP BY customer, session(seen, interval '10 seconds')
-- oracle
SELECT customer, window_start, window_end, avg(milliseconds) AS mean FROM sessions('pages_views', 'customer', 10000) GROUP BY customer, window_start, window_end
-- case: the items with the largest sums
SELECT customer, page, topk(id, 2) AS total FROM views GROUP BY customer, tumble(seen, interval '2 minutes')
-- oracle
SELECT customer, page, sum(id) AS total, window_start FROM tumbled('views', 120000) GROUP BY customer, page, window_start
QUALIFY row_number() OVER (PARTITION BY customer, window_start ORDER BY sum(id) DESC) <= 2
-- case: a decimal sum of a window
SELECT page, sum(price) AS total, max(price) AS most FROM views GROUP BY page, tumble(seen, interval '1 minute') EMIT ON WINDOW CLOSE
-- oracle
SELECT page, sum(price) AS total, max(price) AS most, window_start FROM tumbled('views', 60000) GROUP BY page, window_start
-- case: the first rows of each window
SELECT page, count(*) AS views, max(id) AS newest FROM views GROUP BY page, tumble(seen, interval '1 minute') ORDER BY views DESC, newest LIMIT 2
-- oracle
SELECT page, count(*) AS views, max(id) AS newest, window_start FROM tumbled('views', 60000) GROUP BY page, window_start
QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY count(*) DESC, max(id)) <= 2
-- case: the first rows of overlapping windows, with NULL first, and HAVING
SELECT window_start AS begin, customer, page, sum(weight) AS weight, min(happened) AS happened FROM views
GROUP BY page, customer, hop(seen, interval '1 minute', interval '2 minutes') HAVING count(*) > 1 ORDER BY sum(weight) DESC, 3 NULLS FIRST, customer DESC LIMIT 3 EMIT ON WINDOW CLOSE
-- oracle
SELECT window_start AS begin, customer, page, sum(weight) AS weight, min(happened) AS happened FROM hopped('views', 60000, 120000)
GROUP BY page, customer, window_start HAVING count(*) > 1
QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY sum(weight) DESC NULLS FIRST, page NULLS FIRST, customer DESC) <= 3
-- case: the first row of each window, in an inner query
SELECT customer, count(*) AS wins, max(window_start) AS window_start FROM (
    SELECT window_start, customer, count(*) AS views FROM views GROUP BY customer, tumble(seen, interval '1 minute') ORDER BY views DESC, customer LIMIT 1
) AS winners GROUP BY customer
-- oracle
SELECT customer, count(*) AS wins, max(window_start) AS window_start FROM (
    SELECT window_start, customer, count(*) AS views FROM tumbled('views', 60000) GROUP BY customer, window_start
    QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY count(*) DESC, customer) = 1
) GROUP BY customer
-- case: overlapping windows whose step does not divide their size
SELECT customer, window_start, window_end, count(*) AS views, sum(weight) AS weight FROM views GROUP BY customer, hop(seen, interval '40 seconds', interval '100 seconds')
-- oracle
SELECT customer, window_start, window_end, count(*) AS views, sum(weight) AS weight FROM
(SELECT *, unnest(range(seen // 40000 * 40000 - 120000, seen + 1, 40000)) AS window_start, window_start + 100000 AS window_end FROM views)
WHERE seen >= window_start AND seen < window_end GROUP BY customer, window_start, window_end
-- case: overlapping windows whose step is their size
SELECT page, window_start, count(*) AS views FROM views GROUP BY page, hop(seen, interval '1 minute', interval '1 minute')
-- oracle
SELECT page, window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY page, window_start
-- case: sessions whose gaps equal the interval
SELECT customer, window_start, window_end, count(*) AS views FROM views GROUP BY customer, session(seen, interval '500 milliseconds')
-- oracle
SELECT customer, window_start, window_end, count(*) AS views FROM sessions('views', 'customer', 500) GROUP BY customer, window_start, window_end
-- case: sessions of the smallest gap
SELECT page, window_end, count(*) AS views, count(DISTINCT customer) AS customers FROM views GROUP BY page, session(seen, interval '1 millisecond')
-- oracle
SELECT page, window_end, count(*) AS views, count(DISTINCT customer) AS customers FROM sessions('views', 'page', 1) GROUP BY page, window_end
-- case: HAVING without an aggregate in the result of a window
SELECT page, window_start FROM views GROUP BY page, tumble(seen, interval '1 minute') HAVING count(*) > 1 EMIT ON WINDOW CLOSE
-- oracle
SELECT page, window_start FROM tumbled('views', 60000) GROUP BY page, window_start HAVING count(*) > 1
-- case: distinct values with FILTER
SELECT customer, count(DISTINCT page) FILTER (WHERE active) AS pages, count(DISTINCT coalesce(page, 'none')) AS with_none FROM views GROUP BY customer, tumble(seen, interval '2 minutes')
-- oracle
SELECT customer, count(DISTINCT page) FILTER (WHERE active) AS pages, count(DISTINCT coalesce(page, 'none')) AS with_none, window_start FROM tumbled('views', 120000) GROUP BY customer, window_start
-- case: distinct decimals and doubles of a window
SELECT customer, count(DISTINCT price) AS prices, count(DISTINCT milliseconds) AS times, count(DISTINCT price * 0::numeric) AS zero FROM views GROUP BY customer, tumble(seen, interval '2 minutes')
-- oracle
SELECT customer, count(DISTINCT price) AS prices, count(DISTINCT milliseconds + 0.0) AS times, count(DISTINCT price * 0) AS zero, window_start FROM tumbled('views', 120000) GROUP BY customer, window_start
-- case: windows of an odd length
SELECT window_start, window_end, count(*) AS views FROM views GROUP BY tumble(seen, interval '7 seconds 1 millisecond')
-- oracle
SELECT window_start, window_end, count(*) AS views FROM tumbled('views', 7001) GROUP BY window_start, window_end
-- case: windows of half a minute, as a fraction
SELECT window_start, count(*) AS views FROM views GROUP BY tumble(seen, interval '0.5 minutes')
-- oracle
SELECT window_start, count(*) AS views FROM tumbled('views', 30000) GROUP BY window_start
-- case: a window by an alias and the number of a column
SELECT upper(page) AS capital, active, window_start AS began, count(*) AS views FROM views GROUP BY capital, 2, tumble(seen, interval '1 minute')
-- oracle
SELECT upper(page) AS capital, active, window_start AS began, count(*) AS views FROM tumbled('views', 60000) GROUP BY 1, 2, 3
-- case: a window by a column that is not selected, at its close
SELECT window_start, count(*) AS views FROM views GROUP BY page, tumble(seen, interval '1 minute') EMIT ON WINDOW CLOSE
-- oracle
SELECT window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY page, window_start
-- case: a comparison of a sum
SELECT page, sum(weight) AS total, sum(weight) = 0 AS is_zero FROM views GROUP BY page, tumble(seen, interval '3 minutes') HAVING sum(weight) IS NOT NULL EMIT ON WINDOW CLOSE
-- oracle
SELECT page, sum(weight) AS total, sum(weight) = 0 AS is_zero, window_start FROM tumbled('views', 180000) GROUP BY page, window_start HAVING sum(weight) IS NOT NULL
-- case: the first rows by two orders, one of them NULL last
SELECT customer, window_start, count(*) AS views, sum(weight) AS weight FROM views GROUP BY customer, page, tumble(seen, interval '2 minutes') ORDER BY weight DESC NULLS LAST, views, customer LIMIT 2
-- oracle
SELECT customer, window_start, views, weight FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY weight DESC NULLS LAST, views, customer) AS n FROM
(SELECT customer, window_start, count(*) AS views, sum(weight) AS weight FROM tumbled('views', 120000) GROUP BY customer, page, window_start)) WHERE n <= 2
-- case: HAVING of the bounds of a window
SELECT customer, window_start, count(*) AS views FROM views GROUP BY customer, tumble(seen, interval '1 minute') HAVING window_start % 120000 = 0
-- oracle
SELECT customer, window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY customer, window_start HAVING window_start % 120000 = 0
-- case: WHERE of the event time
SELECT customer, count(*) AS views FROM views WHERE seen BETWEEN 30000 AND 119999 GROUP BY customer, tumble(seen, interval '1 minute')
-- oracle
SELECT customer, count(*) AS views, window_start FROM tumbled('views', 60000) WHERE seen BETWEEN 30000 AND 119999 GROUP BY customer, window_start
-- case: CASE of the bounds, and the last moment of a window
SELECT page, CASE WHEN window_start = 0 THEN 'first' ELSE 'later' END AS part, window_end - 1 AS last_ms, count(*) AS views FROM views GROUP BY page, tumble(seen, interval '1 minute')
-- oracle
SELECT page, CASE WHEN window_start = 0 THEN 'first' ELSE 'later' END AS part, window_end - 1 AS last_ms, count(*) AS views, window_start FROM tumbled('views', 60000) GROUP BY page, window_start, window_end
-- case: the first and the last event time of a window
SELECT customer, min(seen) AS first_seen, max(seen) AS last_seen, max(seen) - min(seen) AS lasting FROM views GROUP BY customer, hop(seen, interval '1 minute', interval '3 minutes')
-- oracle
SELECT customer, min(seen) AS first_seen, max(seen) AS last_seen, max(seen) - min(seen) AS lasting, window_start FROM hopped('views', 60000, 180000) GROUP BY customer, window_start
-- case: the last rows of each window, with NULL
SELECT page, window_start, sum(weight) AS weight FROM views GROUP BY page, tumble(seen, interval '1 minute') ORDER BY sum(weight) NULLS FIRST, page NULLS FIRST LIMIT 3
-- oracle
SELECT page, window_start, weight FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY weight NULLS FIRST, page NULLS FIRST) AS n FROM
(SELECT page, window_start, sum(weight) AS weight FROM tumbled('views', 60000) GROUP BY page, window_start)) WHERE n <= 3
-- case: the first rows by an expression and the number of a column
SELECT customer, window_start, count(*) AS views FROM views GROUP BY customer, tumble(seen, interval '1 minute') ORDER BY -count(*), 1 DESC LIMIT 1
-- oracle
SELECT customer, window_start, views FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY -views, customer DESC) AS n FROM
(SELECT customer, window_start, count(*) AS views FROM tumbled('views', 60000) GROUP BY customer, window_start)) WHERE n <= 1
-- case: sessions without a column of the group
SELECT customer, count(*) FILTER (WHERE weight IS NULL) AS unknown, sum(weight) AS weight, max(price) AS price FROM views GROUP BY customer, session(seen, interval '4 seconds')
-- oracle
SELECT customer, count(*) FILTER (WHERE weight IS NULL) AS unknown, sum(weight) AS weight, max(price) AS price, window_end FROM sessions('views', 'customer', 4000) GROUP BY customer, window_end
-- case: a window of a join
SELECT o.customer, window_start, count(*) AS pairs, sum(p.paid) AS paid FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen - interval '5 seconds' AND o.seen + interval '5 seconds' GROUP BY o.customer, tumble(o.seen, interval '1 minute')
-- oracle
SELECT o.customer, o.seen // 60000 * 60000 AS window_start, count(*) AS pairs, sum(p.paid) AS paid FROM orders o LEFT JOIN payments p ON p.customer = o.customer AND p.seen BETWEEN o.seen - 5000 AND o.seen + 5000 GROUP BY o.customer, 2
-- case: the first rows by an expression of results that are named otherwise
SELECT customer AS who, window_start, sum(weight) AS views, count(*) AS weight FROM views GROUP BY customer, tumble(seen, interval '1 minute') ORDER BY abs(sum(weight)) + count(*) DESC, upper(customer) LIMIT 2
-- oracle
SELECT who, window_start, views, weight FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY abs(views) + weight DESC NULLS FIRST, who) AS n FROM
(SELECT customer AS who, window_start, sum(weight) AS views, count(*) AS weight FROM tumbled('views', 60000) GROUP BY customer, window_start)) WHERE n <= 2
