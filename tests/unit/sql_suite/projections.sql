-- case: all columns
SELECT * FROM views
-- case: some columns in another order
SELECT page, seen, id FROM views
-- case: renamed columns
SELECT seen, id AS number, page AS address, customer AS who FROM views
-- case: quoted names
SELECT seen, id, page AS "Page of a visit", customer AS "select" FROM views
-- case: constants
SELECT seen, id, 1 AS one, 'text' AS words, true AS yes, -2 AS minus FROM views
-- case: the column of a table by its name
SELECT views.seen, views.id, views.page FROM views
-- case: the column of a table by its alias
SELECT v.seen, v.id, v.page FROM views AS v WHERE v.weight > 0
-- case: sums and products
SELECT seen, id, weight + 2 * weight - 1 AS plain, (weight + 2) * (weight - 1) AS grouped, -weight AS negative FROM views
-- case: a remainder has the sign of the dividend
SELECT seen, id, weight % 3 AS rest, mod(weight, -4) AS other FROM views
-- case: division of doubles
SELECT seen, id, milliseconds / 8 AS eighth, weight / 4.0 AS quarter FROM views
-- case: division of integers
SELECT seen, id, weight / 2 AS half, weight / -3 AS third FROM views
-- oracle
SELECT seen, id, weight // 2 AS half, weight // -3 AS third FROM views
-- postgres: the quotient of integers is an integer, truncated toward zero; in DuckDB, it is a fraction
-- -7 / 2 => -3
-- 7 / -2 => -3
-- case: NULL operands make NULL
SELECT seen, id, weight + NULL AS nothing, weight + 1 AS more, milliseconds * weight AS product FROM views
-- case: an operand is converted to double
SELECT seen, id, weight + milliseconds AS both_kinds, weight * 1.5 AS scaled FROM views
-- case: absolute values and signs
SELECT seen, id, abs(weight) AS size, abs(milliseconds - 10) AS distance, sign(milliseconds - 10) AS direction FROM views
-- case: roots and powers
SELECT seen, id, sqrt(milliseconds) AS root, power(weight, 2) AS square, cbrt(milliseconds) AS cube_root FROM views
-- case: the power operator
SELECT seen, id, weight ^ 2 AS square, 2 ^ 3 ^ 2 AS from_left FROM views
-- postgres: the operator is left-associative
-- 2 ^ 3 ^ 2 => 64
-- case: logarithms
SELECT seen, id, ln(milliseconds + 1) AS natural, log(milliseconds + 1) AS decimal, exp(milliseconds / 10) AS back FROM views
-- case: floor and ceil
SELECT seen, id, floor(milliseconds) AS low, ceil(milliseconds) AS high, floor(-milliseconds) AS lowest FROM views
-- case: rounding of doubles
SELECT seen, id, round(milliseconds) AS near, trunc(milliseconds) AS cut FROM views
-- oracle
SELECT seen, id, round_even(milliseconds, 0) AS near, trunc(milliseconds) AS cut FROM views
-- postgres: halves of doubles go to the even number; in DuckDB, away from zero
-- round(cast('2.5' AS double precision)) => 2
-- round(cast('3.5' AS double precision)) => 4
-- case: greatest and least pass over NULL
SELECT seen, id, greatest(weight, 2, -1) AS most, least(weight, id) AS fewest, greatest(page, customer) AS later FROM views
-- case: booleans as values
SELECT seen, id, weight > 2 AS heavy, NOT active AS idle, active AND weight > 0 AS busy, active OR page IS NULL AS odd FROM views
-- case: all columns of a named table
SELECT v.* FROM views AS v
-- case: all columns and another one
SELECT *, weight + 1 AS more FROM views
-- case: NULL tests of constants
SELECT seen, id, 1 IS NULL AS never, 'a' IS NOT NULL AS always, NULL IS NULL AS unknown FROM views
-- case: quoted names that are reserved or contain spaces
SELECT seen, id, page AS "order", weight AS "group by", customer AS "from", active AS "class", born AS "a.b" FROM views
-- case: names in another case are other names
SELECT seen, id, page AS "Page", upper(page) AS page FROM views
-- case: an alias with the name of another column
SELECT seen, id, weight AS milliseconds, milliseconds AS weight FROM views WHERE weight > 2
-- case: an alias does not change what WHERE names
SELECT seen, id, weight + 100 AS weight FROM views WHERE weight < 5
-- case: overflow is avoided by a wider type
SELECT seen, id, 9223372036854775807::numeric + weight AS wide FROM views
-- oracle
SELECT seen, id, 9223372036854775807::decimal(20, 0) + weight AS wide FROM views
-- case: integers, decimals and doubles in one expression
SELECT seen, id, weight + price AS decimals, weight * milliseconds AS doubles, price + milliseconds AS mixed, weight / 2 + price AS halves FROM views
-- oracle
SELECT seen, id, weight + price AS decimals, weight * milliseconds AS doubles, price::double + milliseconds AS mixed, trunc(weight / 2.0)::bigint + price AS halves FROM views
-- case: remainders and signs
SELECT seen, id, weight % -4 AS rest, -weight % 4 AS other, mod(weight, 3) AS third, - - weight AS same FROM views
-- case: precedence of operators
SELECT seen, id, 2 + weight * 3 - 4 % 3 AS number, -2 ^ 2 AS power, NOT weight = 2 AND id > 1 AS flag, weight + 1 > 2 = active AS compared FROM views
-- oracle
SELECT seen, id, 2 + weight * 3 - 4 % 3 AS number, 4.0 AS power, (NOT weight = 2) AND id > 1 AS flag, (weight + 1 > 2) = active AS compared FROM views
