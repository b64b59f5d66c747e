-- case: parts of a time
SELECT seen, id, extract(year FROM happened) AS year, extract(month FROM happened) AS month, extract(day FROM happened) AS day,
    extract(hour FROM happened) AS hour, extract(minute FROM happened) AS minute FROM views
-- case: seconds with a fraction
SELECT seen, id, extract(second FROM happened) AS second FROM views
-- oracle
SELECT seen, id, extract(microsecond FROM happened) / 1e6 AS second FROM views
-- postgres: the second contains its fraction; in DuckDB, it is a whole number
-- cast(extract(second FROM timestamptz '2026-01-31 10:00:07.25+00') AS double precision) => 7.25
-- case: days and weeks
SELECT seen, id, extract(dow FROM happened) AS dow, extract(isodow FROM happened) AS isodow, extract(doy FROM happened) AS doy,
    extract(week FROM happened) AS week, extract(quarter FROM happened) AS quarter FROM views
-- case: parts of a date
SELECT seen, id, extract(year FROM born) AS year, extract(doy FROM born) AS doy, date_part('month', born) AS month FROM views
-- case: seconds since 1970
SELECT seen, id, extract(epoch FROM happened) AS seconds FROM views
-- case: truncated times
SELECT seen, id, date_trunc('hour', happened) AS hour, date_trunc('minute', happened) AS minute, date_trunc('second', happened) AS second FROM views
-- case: truncated days
SELECT seen, id, date_trunc('day', happened) AS day, date_trunc('week', happened) AS week, date_trunc('month', happened) AS month,
    date_trunc('quarter', happened) AS quarter, date_trunc('year', happened) AS year FROM views
-- case: bins
SELECT seen, id, date_bin('15 minutes', happened, timestamptz '2026-01-01 00:05:00+00') AS bin FROM views
-- oracle
SELECT seen, id, time_bucket(interval '15 minutes', happened, timestamptz '2026-01-01 00:05:00+00') AS bin FROM views
-- postgres: DuckDB names the function time_bucket
-- cast(date_bin('15 minutes', timestamptz '2026-01-01 00:04:00+00', timestamptz '2026-01-01 00:05:00+00') AS text) => 2025-12-31 23:50:00+00
-- case: intervals
SELECT seen, id, happened + interval '90 minutes' AS later, happened - interval '1 day' AS earlier FROM views
-- case: intervals times numbers
SELECT seen, id, happened + id * interval '90 seconds' AS later, happened - 2 * interval '1 hour' AS earlier,
    happened + (interval '1 hour' * 1.5 - interval '10 minutes' / 4) AS other, extract(epoch FROM -(weight * interval '1 minute')) AS seconds FROM views
-- oracle
SELECT seen, id, happened + to_seconds(id * 90) AS later, happened - interval '2 hours' AS earlier,
    happened + interval '5250 seconds' AS other, -(weight * 60)::double AS seconds FROM views
-- postgres: DuckDB rounds a factor to a whole number
-- extract(epoch FROM interval '1 hour' * 1.5)::bigint => 5400
-- extract(epoch FROM 0.25 * interval '1 minute')::bigint => 15
-- extract(epoch FROM - interval '1 hour' / 4)::bigint => -900
-- case: a difference of times
SELECT seen, id FROM views WHERE happened - timestamptz '2026-03-29 00:00:00+00' > interval '20 minutes'
-- case: a difference of dates
SELECT seen, id, born - date '2000-01-01' AS days FROM views
-- case: dates and times
SELECT seen, id, happened::date AS day, born::timestamptz AS midnight FROM views
-- case: the local time of a zone
SELECT seen, id, extract(hour FROM happened AT TIME ZONE 'Europe/Berlin') AS hour, (happened AT TIME ZONE 'Europe/Berlin')::date AS day FROM views
-- case: the local time as text
SELECT seen, id, (date_trunc('second', happened) AT TIME ZONE 'America/New_York')::text AS local_time FROM views
-- case: the moment of a local midnight
SELECT seen, id, date_trunc('day', happened, 'Europe/Berlin') AS midnight FROM views
-- oracle
SELECT seen, id, date_trunc('day', happened AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin' AS midnight FROM views
-- postgres: DuckDB has no third argument
-- cast(date_trunc('day', timestamptz '2026-03-29 10:00:00+00', 'Europe/Berlin') AS text) => 2026-03-28 23:00:00+00
-- case: the event time as a timestamp
SELECT seen, id, to_timestamp_ms(seen) AS moment, to_timestamp(weight) AS other FROM views
-- oracle
SELECT seen, id, epoch_ms(seen)::timestamp AT TIME ZONE 'UTC' AS moment, to_timestamp(weight) AS other FROM views
-- postgres: neither database has the name to_timestamp_ms
-- cast(to_timestamp(-5) AS text) => 1969-12-31 23:59:55+00
-- case: milliseconds of a timestamp
SELECT seen, id, epoch_ms(happened) AS milliseconds FROM views
-- case: the day of an event
SELECT seen, id FROM views WHERE happened::date = date '2026-03-29' AND extract(hour FROM happened) < 1
-- case: several intervals
SELECT seen, id, happened + interval '1 day' - interval '30 seconds' AS later, happened + interval '1 hour 30 minutes' AS other FROM views
-- case: the greatest of times
SELECT seen, id, greatest(happened, timestamptz '2026-03-29 00:00:00+00') AS at_least, coalesce(born, date '1970-01-01') AS born FROM views
-- case: seconds since 1970 of a date
SELECT seen, id, extract(epoch FROM born) AS seconds FROM views
-- case: formatted times
SELECT seen, id, to_char(happened, 'YYYY-MM-DD HH24:MI:SS.MS') AS shown, to_char(happened AT TIME ZONE 'Europe/Berlin', 'DD Mon HH12 AM') AS berlin FROM views
-- oracle
SELECT seen, id, strftime(happened, '%Y-%m-%d %H:%M:%S.%g') AS shown, strftime(happened AT TIME ZONE 'Europe/Berlin', '%d %b %I %p') AS berlin FROM views
-- postgres: DuckDB has the formats of C instead
-- to_char(timestamptz '2026-03-09 14:05:07.25+00', 'FMDay, FMDD. FMMonth "in" YYYY, MS') => Monday, 9. March in 2026, 250
-- case: the hours of the night in which clocks go forward
SELECT seen, id, extract(hour FROM happened AT TIME ZONE 'Europe/Berlin') AS hour, date_trunc('day', happened, 'Europe/Berlin') AS midnight FROM views
-- oracle
SELECT seen, id, extract(hour FROM happened AT TIME ZONE 'Europe/Berlin')::double AS hour, date_trunc('day', happened AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin' AS midnight FROM views
-- case: truncated within the hour that occurs twice
SELECT seen, id, date_trunc('hour', happened + interval '30 weeks', 'Europe/Berlin') AS hour, date_trunc('minute', happened + interval '30 weeks', 'Europe/Berlin') AS minute FROM views
-- oracle
SELECT seen, id, date_trunc('hour', happened + interval '210 days') AS hour, date_trunc('minute', happened + interval '210 days') AS minute FROM views
-- postgres: the first of both hours remains the first
-- date_trunc('hour', '2026-10-25 00:30:00+00'::timestamptz, 'Europe/Berlin') => 2026-10-25 00:00:00+00
-- date_trunc('hour', '2026-10-25 01:30:00+00'::timestamptz, 'Europe/Berlin') => 2026-10-25 01:00:00+00
-- case: dates of zones on both sides of the date line
SELECT seen, id, (happened AT TIME ZONE 'Pacific/Kiritimati')::date AS east, (happened AT TIME ZONE 'Pacific/Pago_Pago')::date AS west FROM views
-- case: truncated to half hours of a zone
SELECT seen, id, date_trunc('hour', happened, 'Asia/Kolkata') AS hour FROM views
-- oracle
SELECT seen, id, date_trunc('hour', happened AT TIME ZONE 'Asia/Kolkata') AT TIME ZONE 'Asia/Kolkata' AS hour FROM views
-- case: days before and after a date
SELECT seen, id, born + 30 AS later, born - 1 AS before, 7 + born AS week FROM views
-- case: a date and an interval
SELECT seen, id, cast(born + interval '36 hours' AS text) AS later, (born - interval '1 hour')::date AS before FROM views
-- oracle
SELECT seen, id, cast(born + interval '36 hours' AS text) AS later, (born - interval '1 hour')::date AS before FROM views
-- case: seconds between two times
SELECT seen, id, extract(epoch FROM happened - '2026-03-29 00:00:00+00'::timestamptz) AS seconds FROM views
-- oracle
SELECT seen, id, epoch(happened - '2026-03-29 00:00:00+00'::timestamptz) AS seconds FROM views
-- case: comparison of dates with times
SELECT seen, id, born < happened AS earlier, born = date_trunc('day', happened)::date AS same FROM views
-- case: leap days
SELECT seen, id, extract(doy FROM born) AS day, extract(week FROM born) AS week, extract(isodow FROM born + 1) AS dow FROM views
-- oracle
SELECT seen, id, extract(doy FROM born)::double AS day, extract(week FROM born)::double AS week, extract(isodow FROM born + 1)::double AS dow FROM views
-- case: nanoseconds are rounded
SELECT seen, id, happened + interval '1.5 hours' AS later FROM views
-- oracle
SELECT seen, id, happened + interval '90 minutes' AS later FROM views
-- postgres: to microseconds
-- cast('2026-01-01 10:00:00.1234567+00' AS timestamptz) => 2026-01-01 10:00:00.123457+00
-- cast('2026-01-01 10:00:00.999999999+00' AS timestamptz) => 2026-01-01 10:00:01+00
