-- case: a field as text
SELECT seen, id, payload ->> 'kind' AS kind FROM views
-- case: a field as JSON
SELECT seen, id, payload -> 'tags' AS tags FROM views
-- case: an element of an array
SELECT seen, id, payload -> 'tags' ->> 0 AS first_tag, payload -> 'tags' ->> -1 AS last_tag FROM views
-- case: a path
SELECT seen, id, payload #>> '{inner,n}' AS n, payload #>> '{tags,1}' AS second FROM views
-- oracle
SELECT seen, id, payload ->> '$.inner.n' AS n, payload ->> '$.tags[1]' AS second FROM views
-- postgres: DuckDB writes paths as `$.inner.n`
-- cast('{"inner": {"n": 4}}' AS jsonb) #>> '{inner,n}' => 4
-- case: a number
SELECT seen, id, (payload -> 'amount')::bigint + 1 AS more, (payload -> 'share')::double precision AS share FROM views
-- case: a decimal
SELECT seen, id, (payload -> 'share')::numeric AS share FROM views
-- oracle
SELECT seen, id, (payload ->> 'share')::decimal(9, 3) AS share FROM views
-- case: a boolean
SELECT seen, id, (payload -> 'ok')::boolean AS ok FROM views WHERE (payload -> 'ok')::boolean IS NOT FALSE
-- case: a condition on a field
SELECT seen, id FROM views WHERE payload ->> 'kind' = 'click' AND (payload -> 'amount')::bigint > 2
-- case: a missing field is NULL
SELECT seen, id FROM views WHERE payload -> 'amount' IS NULL
-- oracle
SELECT seen, id FROM views WHERE (payload -> 'amount') IS NULL
-- case: the type of a field
SELECT seen, id, jsonb_typeof(payload -> 'amount') AS kind, jsonb_typeof(payload -> 'tags') AS tags FROM views
-- oracle
SELECT seen, id, CASE WHEN json_type(payload, 'amount') IS NOT NULL THEN 'number' END AS kind, CASE WHEN json_type(payload, 'tags') IS NOT NULL THEN 'array' END AS tags FROM views
-- postgres: the types have other names in DuckDB
-- jsonb_typeof(cast('4' AS jsonb)) => number
-- jsonb_typeof(cast('[4]' AS jsonb)) => array
-- case: the length of an array
SELECT seen, id, jsonb_array_length(payload -> 'tags') AS tags FROM views
-- oracle
SELECT seen, id, json_array_length(payload -> 'tags') AS tags FROM views
-- case: a text that is parsed
SELECT seen, id, cast('{"a": [1, 2]}' AS json) -> 'a' -> 1 AS two FROM views
-- case: an aggregate of a field
SELECT payload ->> 'kind' AS kind, count(*) AS events, sum((payload -> 'amount')::bigint) AS amount, max(seen) AS seen FROM views GROUP BY payload ->> 'kind'
-- case: an element from the end
SELECT seen, id, payload -> 'tags' ->> -1 AS last_tag, payload #>> '{tags,0}' AS first_tag FROM views
-- oracle
SELECT seen, id, payload ->> '$.tags[#-1]' AS last_tag, payload ->> '$.tags[0]' AS first_tag FROM views
-- case: an element beyond the end is NULL
SELECT seen, id, payload -> 'tags' ->> 9 AS none, payload #>> '{inner,n,x}' AS deeper FROM views
-- oracle
SELECT seen, id, NULL AS none, NULL AS deeper FROM views
-- case: a text as text has quotes
SELECT seen, id, cast(payload -> 'kind' AS text) AS quoted, payload ->> 'kind' AS plain, cast(payload -> 'ok' AS text) AS ok FROM views
-- case: NULL of a missing document
SELECT seen, id, coalesce(payload ->> 'kind', 'none') AS kind, (payload -> 'amount') IS NULL AS missing FROM views
-- case: an aggregate with a condition on a field
SELECT customer, count(*) FILTER (WHERE payload ->> 'kind' = 'click') AS clicks, sum((payload ->> 'amount')::bigint) AS amount, max(seen) AS seen FROM views GROUP BY customer
-- case: by a field
SELECT payload ->> 'kind' AS kind, (payload #>> '{inner,n}')::bigint AS n, count(*) AS views, max(seen) AS seen FROM views GROUP BY 1, 2
-- oracle
SELECT payload ->> 'kind' AS kind, (payload ->> '$.inner.n')::bigint AS n, count(*) AS views, max(seen) AS seen FROM views GROUP BY 1, 2
-- case: the number of a text in a document
SELECT seen, id, (payload ->> 'amount')::bigint + 1 AS more FROM views
-- postgres: a text in a document is no number, and has quotes
-- cast('"text"' AS jsonb) => "text"
-- cast('{"a": "b"}' AS jsonb) -> 'a' => "b"
