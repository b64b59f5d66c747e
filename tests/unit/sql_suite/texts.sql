-- case: upper and lower
SELECT seen, id, upper(page) AS upper_page, lower(upper(customer)) AS lower_customer FROM views
-- case: length and reverse
SELECT seen, id, length(page) AS size, reverse(page) AS back, length('äß€') AS points FROM views
-- case: concatenation with NULL
SELECT seen, id, customer || page AS both_texts, customer || '-' || weight AS mixed FROM views
-- case: concat passes over NULL
SELECT seen, id, concat(customer, page, weight) AS joined FROM views
-- case: concat_ws passes over NULL
SELECT seen, id, concat_ws('-', customer, page, 'end') AS joined, concat_ws(page, 'a', 'b') AS by_page FROM views
-- case: substring
SELECT seen, id, substring(page FROM 2) AS rest, substring(page FROM 2 FOR 1) AS second, substring(page, 1, 2) AS first_two FROM views
-- case: substring from before the beginning
SELECT seen, id, substring(customer FROM 0 FOR 3) AS two FROM views
-- case: left and right
SELECT seen, id, left(customer, 2) AS first_two, right(customer, 2) AS last_two, left(customer, -1) AS but_last, right(customer, -1) AS but_first FROM views
-- case: trim
SELECT seen, id, trim(page) AS plain, trim(both '/' from page) AS inner_text, ltrim(page) AS after, rtrim(page) AS before FROM views
-- case: trim of several characters
SELECT seen, id, trim(both '/a' from page) AS rest, trim(leading '/' from page) AS tail, trim(trailing 'b' from page) AS head FROM views
-- case: lpad and rpad
SELECT seen, id, lpad(customer, 6, '*+') AS before, rpad(customer, 6, '.') AS after, lpad(customer, 2, ' ') AS cut FROM views
-- case: replace and translate
SELECT seen, id, replace(page, 'a', 'xyz') AS replaced, translate(page, '/ab', '|A') AS mapped FROM views
-- case: position
SELECT seen, id, position('a' IN page) AS at, strpos(page, 'b') AS other FROM views
-- case: split_part
SELECT seen, id, split_part(page, '/', 2) AS second, split_part(page, '/', 9) AS ninth, split_part(page, '/', -1) AS last FROM views
-- case: starts_with
SELECT seen, id, starts_with(page, '/a') AS found FROM views WHERE NOT starts_with(customer, 'a')
-- case: repeat and ascii
SELECT seen, id, repeat(page, 2) AS twice, ascii(customer) AS code, repeat('x', 0) AS nothing FROM views
-- case: md5
SELECT seen, id, md5(page) AS hash FROM views
-- case: initcap
SELECT seen, id, initcap(customer || ' SMITH-jones') AS name FROM views
-- oracle
SELECT seen, id, upper(customer[1]) || customer[2:] || ' Smith-Jones' AS name FROM views
-- postgres: each word begins with a capital; DuckDB has no such function
-- initcap('ann SMITH-jones o2x') => Ann Smith-Jones O2x
-- case: a regular expression matches anywhere
SELECT seen, id, page FROM views WHERE page ~ 'a.'
-- oracle
SELECT seen, id, page FROM views WHERE regexp_matches(page, 'a.')
-- postgres: the operator matches anywhere; in DuckDB, it matches the whole text
-- 'cab' ~ 'a' => true
-- case: a regular expression does not match
SELECT seen, id, page FROM views WHERE page !~ '^/a'
-- oracle
SELECT seen, id, page FROM views WHERE NOT regexp_matches(page, '^/a')
-- postgres: the operator matches anywhere
-- 'b/a' !~ '^/a' => true
-- case: a regular expression of any case
SELECT seen, id, page ~* 'A' AS found, page !~* '^/A' AS other FROM views
-- oracle
SELECT seen, id, regexp_matches(page, 'A', 'i') AS found, NOT regexp_matches(page, '^/A', 'i') AS other FROM views
-- postgres: DuckDB has no such operator
-- '/ab' ~* 'A' => true
-- 'É' ~* 'é' => true
-- 'straßE' ~* 'STRAßE' => true
-- 'ſ' ~* 's' => false
-- 'ı' ~* '[i-k]' => false
-- 'Ω' ~* '[^ω]' => false
-- 'aA' ~* '(a)\1' => true
-- 'a.B' ~* '^A\.\w$' => true
-- regexp_replace('Kk', '[a-z]', '*', 'gi') = 'K*' => true
-- 'B-' ~* '^[a-c-]+$' => true
-- case: regexp_replace of the first match
SELECT seen, id, regexp_replace(page, '[/a]', '-') AS replaced FROM views
-- case: regexp_replace of all matches
SELECT seen, id, regexp_replace(page, '[/a]', '-', 'g') AS replaced FROM views
-- case: regexp_replace with groups
SELECT seen, id, regexp_replace(page, '(/)(a)', '\2\1', 'g') AS swapped FROM views
-- case: regexp_replace of any case
SELECT seen, id, regexp_replace(page, 'A+', '<>', 'gi') AS replaced FROM views
-- case: regexp_substr
SELECT seen, id, regexp_substr(page, '[a-z]+') AS word FROM views
-- oracle
SELECT seen, id, nullif(regexp_extract(page, '[a-z]+'), '') AS word FROM views
-- postgres: without a match, the value is NULL; in DuckDB, an empty text
-- regexp_substr('/', '[a-z]+') IS NULL => true
-- case: texts with umlauts and quotes
SELECT seen, id, 'it''s ä' || customer AS words, upper('äé') AS capitals FROM views
-- case: substring beyond the end
SELECT seen, id, substring(page FROM 9) AS nothing, substring(page FROM 2 FOR 0) AS empty_text FROM views
-- case: concatenation of several kinds
SELECT seen, id, 'n' || id || ' ' || active AS words FROM views
-- case: pad without a text to fill with
SELECT seen, id, lpad(page, 4) AS before, rpad(page, 1) AS after FROM views
-- oracle
SELECT seen, id, lpad(page, 4, ' ') AS before, rpad(page, 1, ' ') AS after FROM views
-- case: replace of an empty text
SELECT seen, id, replace(page, '', 'x') AS same, replace(page, '/', '') AS without FROM views
-- case: parts beyond the end, and from the end
SELECT seen, id, split_part(page, '/', 5) AS none, split_part(page, '/', -1) AS last_one FROM views
-- case: negative lengths
SELECT seen, id, left(page, -1) AS most, right(page, -1) AS rest, left(page, -9) AS none FROM views
-- case: pads that cut
SELECT seen, id, lpad(page, 2, 'x') AS two, rpad(page, 0, 'x') AS none, lpad(page, 4, 'xyz') AS four FROM views
-- case: booleans in concat
SELECT seen, id, concat(active, '-', weight) AS joined, concat_ws(',', active, page) AS listed, active || '!' AS operator FROM views
-- oracle
SELECT seen, id, concat(CASE WHEN active THEN 't' WHEN NOT active THEN 'f' END, '-', weight) AS joined,
    concat_ws(',', CASE WHEN active THEN 't' WHEN NOT active THEN 'f' END, page) AS listed, CASE WHEN active THEN 'true!' WHEN NOT active THEN 'false!' END AS operator FROM views
-- postgres: concat shows a boolean as one character, and || as a word
-- concat(true, '-') => t-
-- true || '-' => true-
-- case: letters whose other case is another number of letters
SELECT seen, id, upper(page || 'straße') AS capital, lower('İΑΣ' || page) AS small FROM views
-- oracle
SELECT seen, id, upper(page) || 'STRAßE' AS capital, 'iασ' || lower(page) AS small FROM views
-- postgres: one letter becomes one letter
-- upper('straße') => STRAßE
-- lower('İΑΣ') => iασ
-- case: a group that the pattern does not have
SELECT seen, id, regexp_replace(page, '/', '<\&>') AS marked FROM views
-- oracle
SELECT seen, id, regexp_replace(page, '/', '</>') AS marked FROM views
-- postgres: it is empty
-- regexp_replace('foobarbaz', 'b(..)', 'X\2Y', 'g') => fooXYXY
-- regexp_replace('foobarbaz', 'b..', '[\1]') => foo[]baz
