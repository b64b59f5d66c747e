-- The works of throughput.py as queries.
CREATE CATEGORY by_dim (
    event_time bigint, event text NOT NULL, dim_id text NOT NULL, topic text NOT NULL, text text NOT NULL
) WITH (category = 'bench_by_dim', key = 'dim_id', time = 'event_time', buckets = 4, retention = 'forever');

CREATE CATEGORY by_topic (
    event_time bigint, event text NOT NULL, dim_id text NOT NULL, topic text NOT NULL, text text NOT NULL
) WITH (category = 'bench_by_topic', key = 'topic', time = 'event_time', buckets = 4, retention = 'forever');

CREATE TABLE sql_filter WITH (category = 'bench_sql_clicks', buckets = 4, retention = 'forever') AS
SELECT event_time, dim_id, topic FROM by_dim WHERE event = 'click';

CREATE TABLE sql_few WITH (category = 'bench_sql_few_counts', buckets = 4, retention = 'forever') AS
SELECT topic, window_start, count(*) AS n
FROM by_topic
GROUP BY topic, tumble(event_time, interval '5 minutes');

CREATE TABLE sql_many WITH (category = 'bench_sql_many_counts', buckets = 4, retention = 'forever') AS
SELECT dim_id, window_start, count(*) AS n
FROM by_dim
GROUP BY dim_id, tumble(event_time, interval '5 minutes');
