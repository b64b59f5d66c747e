-- case: by the key
SELECT customer, count(*) AS views, max(seen) AS seen FROM views GROUP BY customer
-- case: by another column, also NULL
SELECT page, count(*) AS views, count(page) AS pages, max(seen) AS seen FROM views GROUP BY page
-- case: by two columns
SELECT customer, page, count(*) AS views, sum(weight) AS weight, max(seen) AS seen FROM views GROUP BY customer, page
-- case: by an expression
SELECT length(page) AS size, count(*) AS views, max(seen) AS seen FROM views GROUP BY length(page)
-- case: by the number of a column
SELECT weight % 2 AS odd, active, count(*) AS views, max(seen) AS seen FROM views GROUP BY 1, 2
-- case: by an alias
SELECT upper(page) AS capital, count(*) AS views, max(seen) AS seen FROM views GROUP BY capital
-- case: by a boolean
SELECT active, min(weight) AS least, max(weight) AS most, max(seen) AS seen FROM views GROUP BY active
-- case: by a date
SELECT born, count(*) AS views, max(seen) AS seen FROM views GROUP BY born
-- case: by a time
SELECT date_trunc('hour', happened) AS hour, count(*) AS views, max(seen) AS seen FROM views GROUP BY 1
-- case: by a double
SELECT milliseconds, count(*) AS views, max(seen) AS seen FROM views GROUP BY milliseconds
-- oracle
SELECT milliseconds + 0.0 AS milliseconds, count(*) AS views, max(seen) AS seen FROM views GROUP BY 1
-- postgres: 0 and -0 are one group
-- cast('-0' AS double precision) = cast('0' AS double precision) => true
-- case: by CASE
SELECT CASE WHEN weight > 2 THEN 'heavy' ELSE 'light' END AS class, count(*) AS views, max(seen) AS seen FROM views GROUP BY 1
-- case: no group
SELECT count(*) AS views, sum(weight) AS weight, avg(milliseconds) AS mean, max(seen) AS seen FROM views
-- case: default names
SELECT customer, count(*), sum(weight), min(page), max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, count(*) AS count, sum(weight) AS sum, min(page) AS min, max(seen) AS seen FROM views GROUP BY customer
-- case: aggregates of NULL only
SELECT customer, count(weight) AS counted, sum(weight) AS total, avg(weight) AS mean, min(page) AS page, max(seen) AS seen FROM views WHERE weight IS NULL GROUP BY customer
-- case: min and max of texts, dates and times
SELECT customer, min(page) AS first_page, max(page) AS last_page, min(born) AS born, max(happened) AS happened, max(seen) AS seen FROM views GROUP BY customer
-- case: min and max of booleans
SELECT page, bool_and(active) AS always, bool_or(active) AS ever, bool_or(weight > 4) AS heavy, max(seen) AS seen FROM views GROUP BY page
-- case: averages
SELECT page, avg(weight) AS weight, avg(milliseconds) AS milliseconds, max(seen) AS seen FROM views GROUP BY page
-- case: spreads of samples
SELECT customer, stddev(milliseconds) AS deviation, variance(milliseconds) AS spread, stddev_samp(weight) AS of_weights, var_samp(weight) AS var_of_weights, max(seen) AS seen FROM views GROUP BY customer
-- case: spreads of populations
SELECT customer, stddev_pop(milliseconds) AS deviation, var_pop(weight) AS spread, max(seen) AS seen FROM views GROUP BY customer
-- case: the spread of one value
SELECT id, stddev(weight) AS deviation, var_pop(weight) AS spread, max(seen) AS seen FROM views WHERE weight IS NOT NULL GROUP BY id
-- case: counts with FILTER
SELECT customer, count(*) FILTER (WHERE weight > 2) AS heavy, count(page) FILTER (WHERE active) AS pages, max(seen) AS seen FROM views GROUP BY customer
-- case: sums with FILTER
SELECT page, sum(weight) FILTER (WHERE weight > 0) AS gains, avg(milliseconds) FILTER (WHERE customer = 'ann') AS of_ann, max(seen) AS seen FROM views GROUP BY page
-- case: a FILTER that is never true
SELECT customer, count(*) FILTER (WHERE weight > 99) AS none, sum(weight) FILTER (WHERE weight > 99) AS nothing, max(seen) AS seen FROM views GROUP BY customer
-- case: expressions of aggregates
SELECT customer, sum(weight) * 100 / count(*) AS share, coalesce(max(weight), 0) + 1 AS more, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, sum(weight)::bigint * 100 // count(*) AS share, coalesce(max(weight), 0) + 1 AS more, max(seen) AS seen FROM views GROUP BY customer
-- case: aggregates of expressions
SELECT customer, sum(weight * 2 + 1) AS total, max(length(page)) AS longest, sum(CASE WHEN active THEN 1 ELSE 0 END) AS active_ones, max(seen) AS seen FROM views GROUP BY customer
-- case: an expression over the group
SELECT upper(customer) AS name, customer, count(*) AS views, max(seen) AS seen FROM views GROUP BY customer
-- case: HAVING
SELECT customer, page, count(*) AS views, max(seen) AS seen FROM views GROUP BY customer, page HAVING count(*) > 2
-- case: HAVING of another aggregate
SELECT page, count(*) AS views, max(seen) AS seen FROM views GROUP BY page HAVING max(weight) > 6 AND count(*) FILTER (WHERE active) >= 1
-- case: WHERE before the aggregation
SELECT page, count(*) AS views, max(seen) AS seen FROM views WHERE weight > 0 AND page IS NOT NULL GROUP BY page
-- case: GROUP BY without aggregates
SELECT page, max(seen) AS seen FROM views GROUP BY page
-- case: approximate counts of few values are exact
SELECT customer, approx_count_distinct(page) AS pages, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, count(DISTINCT page) AS pages, max(seen) AS seen FROM views GROUP BY customer
-- case: the first and the last value
SELECT customer, first(weight) AS first_weight, last(weight) AS last_weight, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, first(weight ORDER BY seen, weight) FILTER (WHERE weight IS NOT NULL) AS first_weight, last(weight ORDER BY seen, weight) FILTER (WHERE weight IS NOT NULL) AS last_weight, max(seen) AS seen
FROM views GROUP BY customer
-- case: the first and the last value by another column
SELECT page, first(customer) AS first_customer, last(weight) AS last_weight, last(price) AS price, first(milliseconds) AS milliseconds, last(active) AS active, last(born) AS born, max(seen) AS seen FROM views GROUP BY page
-- oracle
SELECT page, first(customer ORDER BY seen, customer) FILTER (WHERE customer IS NOT NULL) AS first_customer, last(weight ORDER BY seen, weight) FILTER (WHERE weight IS NOT NULL) AS last_weight,
last(price ORDER BY seen, price) FILTER (WHERE price IS NOT NULL) AS price, first(milliseconds ORDER BY seen, milliseconds) FILTER (WHERE milliseconds IS NOT NULL) AS milliseconds,
last(active ORDER BY seen, active) FILTER (WHERE active IS NOT NULL) AS active, last(born ORDER BY seen, born) FILTER (WHERE born IS NOT NULL) AS born, max(seen) AS seen
FROM views GROUP BY page
-- case: the last value of some events
SELECT customer, last(page) FILTER (WHERE weight > 2) AS heavy_page, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, last(page ORDER BY seen, page) FILTER (WHERE weight > 2 AND page IS NOT NULL) AS heavy_page, max(seen) AS seen FROM views GROUP BY customer
-- case: extreme quantiles
SELECT customer, approx_quantile(milliseconds, 0) AS least, approx_quantile(milliseconds, 1) AS most, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, min(milliseconds) AS least, max(milliseconds) AS most, max(seen) AS seen FROM views GROUP BY customer
-- case: by a column of a named table
SELECT v.page, count(*) AS views, max(v.seen) AS seen FROM views v GROUP BY page
-- case: by a column that names its table
SELECT page, count(*) AS views, max(seen) AS seen FROM views GROUP BY views.page
-- case: names in capitals
SELECT Page, COUNT(*) AS Views, MAX(Seen) AS Seen FROM Views GROUP BY PAGE
-- oracle
SELECT page, count(*) AS views, max(seen) AS seen FROM views GROUP BY page
-- case: quoted names of columns
SELECT "page", max("seen") AS seen, sum("weight") AS weight FROM views GROUP BY page
-- case: the same aggregate with and without the name of the table
SELECT customer, sum(weight) + sum(views.weight) AS twice, max(seen) AS seen FROM views GROUP BY customer
-- case: an expression of a grouped expression
SELECT length(page) + 1 AS size, length(page) AS plain, count(*) AS views, max(seen) AS seen FROM views GROUP BY length(page)
-- case: counts of a constant and of a condition
SELECT customer, count(1) AS ones, count(nullif(weight > 2, false)) AS heavy, max(seen) AS seen FROM views GROUP BY customer
-- case: conditions of aggregates
SELECT customer, count(*) > 5 AS many, CASE WHEN max(weight) > 7 THEN 'a' ELSE min(page) END AS label, max(seen) AS seen FROM views GROUP BY customer
-- case: FILTER with a condition that is NULL
SELECT customer, count(*) FILTER (WHERE weight > 0 OR NULL) AS positive, count(*) FILTER (WHERE active IS NULL) AS unknown, max(seen) AS seen FROM views GROUP BY customer
-- case: HAVING of a column of the group
SELECT page, count(*) AS views, max(seen) AS seen FROM views GROUP BY page HAVING page LIKE '/%' AND length(page) > 1
-- case: the group is not selected first
SELECT max(seen) AS seen, count(*) AS views, customer FROM views GROUP BY customer
-- case: the sum of doubles and of an empty filter
SELECT page, sum(milliseconds) AS total, sum(milliseconds) FILTER (WHERE false) AS none, max(seen) AS seen FROM views GROUP BY page
-- case: HAVING without an aggregate in SELECT
SELECT page, customer, max(seen) AS seen FROM views GROUP BY page, customer HAVING count(*) > 1 AND min(weight) < 5
-- case: HAVING without GROUP BY
SELECT max(seen) AS seen, sum(weight) AS weight FROM views HAVING count(*) > 3
-- case: HAVING that is NULL
SELECT page, max(seen) AS seen FROM views GROUP BY page HAVING sum(weight) FILTER (WHERE weight > 7) > 0
-- case: GROUP BY a source column under an alias of another column
SELECT page AS customer, customer AS who, count(*) AS views, max(seen) AS seen FROM views GROUP BY page, customer
-- case: an alias that shadows the grouped column
SELECT coalesce(page, 'none') AS page, page AS source, count(*) AS views, max(seen) AS seen FROM views GROUP BY page
-- case: GROUP BY numbers of columns in another order
SELECT count(*) AS views, customer, active, max(seen) AS seen FROM views GROUP BY 3, 2
-- case: GROUP BY the same column twice
SELECT page AS p, count(*) AS views, max(seen) AS seen FROM views GROUP BY page, 1, p
-- case: GROUP BY a list in parentheses
SELECT customer, (id % 2) AS odd, count(*) AS views, max(seen) AS seen, min(page) AS page FROM views GROUP BY (customer, id % 2)
-- case: CASE around aggregates, and aggregates of CASE
SELECT page, CASE WHEN count(weight) = 0 THEN NULL ELSE sum(weight) END AS total, sum(CASE WHEN active THEN weight WHEN NOT active THEN -weight END) AS signed, max(seen) AS seen FROM views GROUP BY page
-- case: integer division of sums
SELECT customer, sum(weight) / 4 AS quarter, sum(weight) % 4 AS rest, -sum(weight) / 4 AS negative, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, trunc(sum(weight) / 4.0)::bigint AS quarter, sum(weight) % 4 AS rest, trunc(-sum(weight) / 4.0)::bigint AS negative, max(seen) AS seen FROM views GROUP BY customer
-- case: FILTER with IS NULL, IN and LIKE
SELECT customer, count(*) FILTER (WHERE page IS NULL OR page LIKE '/a%') AS some, sum(weight) FILTER (WHERE id IN (1, 2, 3, 5, 8, 13, 21, 34)) AS few, bool_or(active) FILTER (WHERE weight > 0) AS ever, max(seen) AS seen FROM views GROUP BY customer
-- case: quoted names of results
SELECT customer AS "Customer Name", count(*) AS "count(*)", max(seen) AS seen FROM views GROUP BY "customer"
-- case: an aggregate of a constant, and a constant result
SELECT customer, sum(1) AS ones, max('x') AS letter, 'all' AS kind, max(seen) AS seen FROM views GROUP BY customer
-- case: the mean and the sum of an empty filter beside a count
SELECT page, avg(weight) FILTER (WHERE weight > 100) AS mean, count(weight) FILTER (WHERE weight > 100) AS none, coalesce(sum(weight) FILTER (WHERE weight > 100), 0) AS zero, max(seen) AS seen FROM views GROUP BY page
-- case: div of sums
SELECT customer, div(sum(weight), 4) AS quarter, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, trunc(sum(weight) / 4.0)::bigint AS quarter, max(seen) AS seen FROM views GROUP BY customer
-- case: groups of expressions with NULL
SELECT coalesce(page, '?') AS page, weight > 2 AS heavy, count(*) AS views, max(seen) AS seen FROM views GROUP BY coalesce(page, '?'), weight > 2
-- case: groups by a JSON field and a date
SELECT payload ->> 'kind' AS kind, born, count(*) AS views, max(seen) AS seen FROM views GROUP BY payload ->> 'kind', born
-- case: groups by a decimal and a truth value
SELECT round(price, 0) AS euros, active IS TRUE AS active, count(*) AS views, sum(price) AS price, max(seen) AS seen FROM views GROUP BY 1, 2
-- case: min and max of expressions of several types
SELECT customer, min(happened + interval '1 hour') AS least, max(born - 1) AS most, min(price * 2) AS price, max(active AND weight > 0) AS flag, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, min(happened + interval '1 hour') AS least, max(born - 1) AS most, min(price * 2) AS price, bool_or(active AND weight > 0) AS flag, max(seen) AS seen FROM views GROUP BY customer
-- case: sums that are NULL in a condition
SELECT customer, CASE WHEN sum(weight) FILTER (WHERE weight > 50) > 0 THEN 'yes' ELSE 'no' END AS large, sum(weight) FILTER (WHERE weight > 50) IS NULL AS unknown, max(seen) AS seen FROM views GROUP BY customer
