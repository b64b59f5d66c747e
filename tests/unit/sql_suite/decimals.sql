-- case: sums of decimals
SELECT seen, id, price + 0.10::numeric AS more, price - price AS zero, price * 3 AS thrice FROM views
-- case: products of decimals
SELECT seen, id, price * price AS square, -price AS negative, abs(price) AS size FROM views
-- case: quotients of decimals
SELECT seen, id, round(price / 4::numeric, 5) AS quarter FROM views
-- oracle
SELECT seen, id, price * 0.25::decimal(3, 2) AS quarter FROM views
-- case: remainders of decimals
SELECT seen, id, price % 0.3::numeric AS rest FROM views
-- case: rounding of decimals
SELECT seen, id, round(price, 1) AS one_place, round(price) AS whole, round(-price, 2) AS two_places FROM views
-- case: halves of decimals are rounded away from zero
SELECT seen, id, round(0.125::numeric(5, 3), 2) AS half, round('-2.5'::numeric) AS negative FROM views
-- oracle
SELECT seen, id, round(0.125::decimal(5, 3), 2) AS half, round('-2.5'::decimal(5, 1)) AS negative FROM views
-- case: truncated decimals
SELECT seen, id, trunc(price) AS whole FROM views
-- case: floor and ceil of decimals
SELECT seen, id, floor(price) AS low, ceil(price) AS high FROM views
-- case: decimals of bounded size
SELECT seen, id, cast(price AS numeric(12, 1)) AS one_place FROM views
-- case: a decimal as text
SELECT seen, id, cast(round(price, 2) AS text) AS shown FROM views
-- oracle
SELECT seen, id, cast(price::decimal(12, 2) AS text) AS shown FROM views
-- case: exact sums
SELECT customer, sum(price) AS total, min(price) AS least, max(price) AS most, max(seen) AS seen FROM views GROUP BY customer
-- case: the mean of decimals
SELECT customer, round(avg(price), 6) AS mean, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, round(sum(price) / count(price), 6) AS mean, max(seen) AS seen FROM views GROUP BY customer
-- case: decimals as a group
SELECT price, count(*) AS events, max(seen) AS seen FROM views GROUP BY price
-- case: distinct decimals
SELECT customer, count(DISTINCT price) AS prices, count(DISTINCT round(price)) AS whole FROM views GROUP BY customer, tumble(seen, interval '10 minutes')
-- oracle
SELECT customer, count(DISTINCT price) AS prices, count(DISTINCT round(price)) AS whole, 0 AS window_start FROM views GROUP BY customer
-- case: computed decimals as a group
SELECT CASE WHEN weight > 2 THEN 1.50::numeric ELSE 1.5::numeric END AS rate, count(*) AS events, max(seen) AS seen FROM views GROUP BY 1
-- oracle
SELECT 1.5::decimal(3, 2) AS rate, count(*) AS events, max(seen) AS seen FROM views
-- case: formatted numbers
SELECT seen, id, to_char(price, 'FM990.00') AS shown, to_char(weight, '000') AS digits FROM views
-- oracle
SELECT seen, id, cast(price::decimal(12, 2) AS text) AS shown, CASE WHEN weight < 0 THEN '-' ELSE ' ' END || printf('%03d', abs(weight)) AS digits FROM views
-- postgres: DuckDB has the formats of C instead
-- to_char(-1234.5, 'FM9G999D00') => -1,234.50
-- to_char(12345, '9999') =>  ####
-- to_char(0.001, 'FM9.99') => 0.
-- to_char(0, 'FM9,.9') => 0.
-- to_char(-7.5, 'FM9.00" FM9 of 10"') => -7.50 FM9 of 10
-- case: a quotient of decimals that does not end
SELECT seen, id, round(price / 3::numeric, 9) AS third, round(price / 7, 9) AS seventh FROM views
-- oracle
SELECT seen, id, round(price::double / 3, 9) AS third, round(price::double / 7, 9) AS seventh FROM views
-- case: the quotient of a sum and a count
SELECT customer, round(sum(price) / count(price), 9) AS mean, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, round(sum(price)::double / count(price), 9) AS mean, max(seen) AS seen FROM views GROUP BY customer
-- case: decimals of more than 28 digits
SELECT seen, id, round(abs('-12345678901234567890.1234567890'::numeric) + price - price, 9) AS sum, '12345678901234567890.123456789'::numeric % 7 AS rest FROM views
-- oracle
SELECT seen, id, CASE WHEN price IS NOT NULL THEN 12345678901234567890.123456789::decimal(38, 9) END AS sum, 1.123456789::decimal(38, 9) AS rest FROM views
-- case: decimals and doubles in one aggregate
SELECT customer, sum(price + milliseconds) AS doubles, sum(price * weight) AS decimals, max(seen) AS seen FROM views GROUP BY customer
-- oracle
SELECT customer, sum(price::double + milliseconds) AS doubles, sum(price * weight) AS decimals, max(seen) AS seen FROM views GROUP BY customer
-- case: arithmetic of many digits
SELECT seen, id, price + 0::numeric AS same FROM views
-- postgres: sums, products and remainders are exact
-- cast('12345678901234567890' AS numeric) * cast('12345678901234567890' AS numeric) => 152415787532388367501905199875019052100
-- cast('1234567890123456789012345678901234567890' AS numeric) + cast('0.01' AS numeric) => 1234567890123456789012345678901234567890.01
-- -cast('123456789012345678901234567890.126' AS numeric) => -123456789012345678901234567890.126
-- abs(cast('-123456789012345678901234567890.126' AS numeric)) => 123456789012345678901234567890.126
-- cast('123456789012345678901234567890.126' AS numeric) % cast('7' AS numeric) => 0.126
-- round(cast('123456789012345678901234567890.126' AS numeric), 2) => 123456789012345678901234567890.13
-- round(cast('0.5' AS numeric), 40) => 0.5000000000000000000000000000000000000000
-- cast(1e15 AS double precision) => 1e+15
-- cast(-1234567890123456 AS double precision) => -1.234567890123456e+15
