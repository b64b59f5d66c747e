-- case: a comparison with NULL excludes the row
SELECT seen, id FROM views WHERE weight > 1
-- case: the opposite excludes it, too
SELECT seen, id FROM views WHERE NOT weight > 1
-- case: equality of texts
SELECT seen, id, page FROM views WHERE page = '/a'
-- case: inequality of texts
SELECT seen, id, page FROM views WHERE page <> '/a'
-- case: IS NULL
SELECT seen, id FROM views WHERE page IS NULL
-- case: IS NOT NULL of several columns
SELECT seen, id FROM views WHERE page IS NOT NULL AND weight IS NOT NULL AND milliseconds IS NOT NULL
-- case: IS DISTINCT FROM a value
SELECT seen, id FROM views WHERE weight IS DISTINCT FROM 2
-- case: IS NOT DISTINCT FROM NULL
SELECT seen, id FROM views WHERE weight IS NOT DISTINCT FROM NULL
-- case: OR is true if one side is true and the other NULL
SELECT seen, id FROM views WHERE weight > 2 OR page = '/a'
-- case: AND is false if one side is false and the other NULL
SELECT seen, id FROM views WHERE NOT (weight > 2 AND page = '/a')
-- case: NOT OR
SELECT seen, id FROM views WHERE NOT (weight > 2 OR active)
-- case: a boolean column
SELECT seen, id FROM views WHERE active
-- case: IS TRUE and IS NOT TRUE
SELECT seen, id, active IS TRUE AS yes, active IS NOT TRUE AS other FROM views WHERE (weight > 1) IS NOT TRUE
-- case: IS FALSE and IS NOT FALSE
SELECT seen, id, active IS FALSE AS no, active IS NOT FALSE AS other FROM views WHERE (weight > 1) IS NOT FALSE
-- case: IN a list
SELECT seen, id FROM views WHERE weight IN (1, 2, 3)
-- case: NOT IN a list
SELECT seen, id FROM views WHERE weight NOT IN (1, 2, 3)
-- case: IN a list of texts
SELECT seen, id FROM views WHERE page IN ('/a', '/', 'missing')
-- case: IN a list of columns
SELECT seen, id FROM views WHERE weight IN (id, id - 1, id - 2, 3)
-- case: IN a list with NULL
SELECT seen, id, weight IN (1, NULL) AS found FROM views WHERE page IN ('/a', NULL)
-- case: NOT IN a list with NULL is never true
SELECT seen, id, page NOT IN ('/a', NULL) AS absent FROM views WHERE (page NOT IN ('/a', NULL)) IS NOT TRUE
-- case: IN a list of columns that can be NULL
SELECT seen, id, 2 IN (weight, id) AS found, 2 NOT IN (weight, id) AS absent FROM views
-- case: BETWEEN
SELECT seen, id FROM views WHERE weight BETWEEN 1 AND 4
-- case: NOT BETWEEN
SELECT seen, id FROM views WHERE milliseconds NOT BETWEEN 5 AND 15.5
-- case: LIKE
SELECT seen, id, page FROM views WHERE page LIKE '/a%'
-- case: LIKE with one character
SELECT seen, id, page FROM views WHERE page LIKE '/_'
-- case: NOT LIKE
SELECT seen, id, page FROM views WHERE page NOT LIKE '%a%'
-- case: ILIKE
SELECT seen, id, page FROM views WHERE page ILIKE '%A%'
-- case: LIKE with ESCAPE
SELECT seen, id, page FROM views WHERE page LIKE '%!%%' ESCAPE '!'
-- case: comparison of texts by code point
SELECT seen, id, page FROM views WHERE page < '/a' AND page >= ''
-- case: comparison of two columns
SELECT seen, id FROM views WHERE weight > milliseconds
-- case: comparison of times
SELECT seen, id FROM views WHERE happened >= timestamptz '2026-03-29 00:30:00+00'
-- case: comparison of dates
SELECT seen, id, born FROM views WHERE born < date '2000-02-29' OR born = '2024-12-31'
-- case: comparison of decimals
SELECT seen, id, price FROM views WHERE price > 1.5 AND price <> 2
-- case: a constant condition
SELECT seen, id FROM views WHERE 1 = 1 AND NOT false
-- case: IS UNKNOWN
SELECT seen, id FROM views WHERE (weight > 2) IS NULL AND (active OR NULL) IS NULL
-- case: LIKE with a backslash
SELECT seen, id, page FROM views WHERE page LIKE '%\%%'
-- oracle
SELECT seen, id, page FROM views WHERE page LIKE '%\%%' ESCAPE '\'
-- postgres: the backslash escapes without ESCAPE
-- 'a%' LIKE '%\%' => true
-- 'ab' LIKE '%\%' => false
-- '' LIKE '\' => false
-- 'b' LIKE 'a\' => false
-- 'a' LIKE 'a\' => false
-- case: a comparison of a boolean with true
SELECT seen, id FROM views WHERE active = true AND (weight > 0) = false
-- case: a comparison of three values
SELECT seen, id, (weight > 2) = active AS same, (weight > 2) <> active AS other FROM views
-- case: NOT of NULL is NULL
SELECT seen, id, NOT (page = '/a') AS other, (NOT active) IS NULL AS unknown FROM views
-- case: BETWEEN with NULL as a bound
SELECT seen, id, weight BETWEEN NULL AND 2 AS within FROM views WHERE (weight BETWEEN NULL AND 2) IS NOT TRUE
-- case: IS DISTINCT FROM of two columns
SELECT seen, id, weight IS DISTINCT FROM id AS other, page IS NOT DISTINCT FROM customer AS same FROM views
-- case: three-valued OR and NOT over two columns
SELECT seen, id FROM views WHERE NOT (active OR weight > 2)
-- case: three-valued AND as a value
SELECT seen, id, active AND weight > 2 AS both, active OR weight > 2 AS either, NOT active AS opposite FROM views
-- case: conditions about conditions
SELECT seen, id, (active AND weight > 2) IS NULL AS unknown, (active = (weight > 2)) IS NOT TRUE AS differs FROM views
-- case: XOR by inequality
SELECT seen, id FROM views WHERE active <> (weight > 2)
-- case: NOT BETWEEN with NULL as a bound
SELECT seen, id FROM views WHERE weight NOT BETWEEN 2 AND NULL
-- case: NOT IN with columns that can be NULL
SELECT seen, id FROM views WHERE 3 NOT IN (weight, id)
-- case: IN of expressions
SELECT seen, id FROM views WHERE upper(page) IN ('/A', '/AB') OR weight + 1 IN (1, 2)
-- case: LIKE of a column
SELECT seen, id FROM views WHERE page LIKE customer || '%' OR page LIKE '%' || 'b'
-- case: LIKE of percent and underscore as characters
SELECT seen, id FROM views WHERE page LIKE '%5!%%' ESCAPE '!' OR page LIKE '_\__'
-- case: a comparison with an empty text
SELECT seen, id FROM views WHERE page > '' AND page <> ' '
-- case: an operator that is written otherwise
SELECT seen, id FROM views WHERE weight != 3 AND NOT page = '/'
-- case: comments within a query
SELECT seen, -- the time; not a statement
    id /* a comment /* in a comment */ ; still */, page
FROM views -- WHERE id = 1
WHERE id > 10 AND page <> '--' AND page <> '/* */'
-- oracle
SELECT seen, id, page FROM views WHERE id > 10 AND page <> '--' AND page <> '/* */'
