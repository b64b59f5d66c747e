-- case: CASE with conditions
SELECT seen, id, CASE WHEN weight > 3 THEN 'heavy' WHEN weight > 0 THEN 'light' ELSE 'none' END AS class FROM views
-- case: CASE without ELSE is NULL
SELECT seen, id, CASE WHEN weight > 3 THEN page END AS heavy_page FROM views
-- case: CASE of a value
SELECT seen, id, CASE page WHEN '/' THEN 0 WHEN '/a' THEN 1 ELSE 2 END AS number FROM views
-- case: CASE of a value that is NULL
SELECT seen, id, CASE weight WHEN NULL THEN 'equal' WHEN 2 THEN 'two' ELSE 'other' END AS found FROM views
-- case: CASE avoids a division by zero
SELECT seen, id, CASE WHEN weight <> 0 THEN 12.0 / weight END AS share FROM views
-- case: CASE of several types of numbers
SELECT seen, id, CASE WHEN active THEN weight ELSE milliseconds END AS amount FROM views
-- case: nested CASE
SELECT seen, id, CASE WHEN active THEN CASE WHEN weight > 1 THEN 'a' ELSE 'b' END ELSE 'c' END AS letter FROM views
-- case: coalesce
SELECT seen, id, coalesce(page, 'none') AS page, coalesce(weight, id, 0) AS number, coalesce(NULL, price, 0) AS price FROM views
-- case: nullif
SELECT seen, id, nullif(page, '/') AS page, nullif(weight, 0) AS weight, 12 / nullif(id - id, 0) AS nothing FROM views
-- oracle
SELECT seen, id, nullif(page, '/') AS page, nullif(weight, 0) AS weight, NULL::bigint AS nothing FROM views
-- case: text to number
SELECT seen, id, cast('12' AS bigint) + weight AS more, '1.5'::double precision AS share, cast('-0.25' AS numeric(9, 2)) AS quarter FROM views
-- case: number to text
SELECT seen, id, weight::text AS weight, cast(id AS text) || '!' AS id_text, cast(active AS text) AS active FROM views
-- case: doubles to text
SELECT seen, id, cast(milliseconds AS text) AS shown FROM views
-- oracle
SELECT seen, id, regexp_replace(cast(milliseconds AS text), '\.0$', '') AS shown FROM views
-- postgres: a double that is whole has no point
-- cast(cast('2' AS double precision) AS text) => 2
-- cast(cast('2.5' AS double precision) AS text) => 2.5
-- cast(cast('-0' AS double precision) AS text) => -0
-- cast(cast('inf' AS double precision) + 1 AS text) => Infinity
-- cast(1 - cast('inf' AS double precision) AS text) => -Infinity
-- cast(cast('inf' AS double precision) * -2 AS text) => -Infinity
-- cast(cast('inf' AS double precision) - cast('inf' AS double precision) AS text) => NaN
-- case: doubles to integers
SELECT seen, id, cast(milliseconds AS bigint) AS near, cast(-milliseconds AS bigint) AS below FROM views
-- oracle
SELECT seen, id, round_even(milliseconds, 0)::bigint AS near, round_even(-milliseconds, 0)::bigint AS below FROM views
-- postgres: halves of doubles go to the even number
-- cast(cast('2.5' AS double precision) AS bigint) => 2
-- cast(cast('-3.5' AS double precision) AS bigint) => -4
-- case: decimals to integers
SELECT seen, id, cast(price AS bigint) AS near FROM views
-- case: integers to decimals and doubles
SELECT seen, id, weight::numeric AS exact, weight::double precision AS approximate FROM views
-- case: booleans to integers and back
SELECT seen, id, cast(active AS integer) AS one, cast(weight AS boolean) AS some FROM views
-- case: text to boolean
SELECT seen, id, cast(CASE WHEN weight > 1 THEN 'true' ELSE 'f' END AS boolean) AS heavy FROM views
-- case: text to times
SELECT seen, id, cast('2026-01-31' AS date) AS day, timestamptz '2026-01-31 10:00:00+02' AS moment, '2026-01-31T10:00:00Z'::timestamptz AS iso FROM views
-- case: times to text
SELECT seen, id, cast(born AS text) AS born, cast(happened AS text) AS happened FROM views
-- case: text to UUID and back
SELECT seen, id, cast('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AS uuid)::text AS uuid FROM views WHERE id < 3
-- case: CASE of a value that is compared with NULL never matches
SELECT seen, id, CASE weight WHEN NULL THEN 'null' WHEN 3 THEN 'three' ELSE 'other' END AS label FROM views
-- case: CASE with a condition that is NULL takes the next branch
SELECT seen, id, CASE WHEN weight > 2 THEN 'heavy' WHEN NOT (weight > 2) THEN 'light' ELSE 'unknown' END AS label FROM views
-- case: CASE whose first branch is NULL
SELECT seen, id, CASE WHEN active THEN NULL ELSE weight END AS weight, coalesce(CASE WHEN active THEN page END, 'none') AS page FROM views
-- case: CASE in WHERE
SELECT seen, id FROM views WHERE CASE WHEN active IS NULL THEN weight > 0 ELSE active END
-- case: coalesce of conditions
SELECT seen, id, coalesce(weight > 2, active, false) AS chosen FROM views
-- case: nullif with NULL on each side
SELECT seen, id, nullif(weight, NULL) AS kept, nullif(NULL::bigint, weight) AS nothing, nullif(page, customer) AS page FROM views
-- case: CASE of texts and numbers that are written as text
SELECT seen, id, CASE WHEN active THEN 1 ELSE '2' END AS number FROM views
-- case: division guarded by nullif
SELECT seen, id, 12 / nullif(weight, 0) AS share, milliseconds / nullif(milliseconds, 0) AS one FROM views
-- oracle
SELECT seen, id, CASE WHEN weight <> 0 THEN trunc(12.0 / weight)::bigint END AS share, CASE WHEN milliseconds <> 0 THEN 1.0 END AS one FROM views
