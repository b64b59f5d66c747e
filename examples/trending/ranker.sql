-- The paper's Figure 2, with types: the three events of each category with the highest scores, every five minutes.
CREATE APPLICATION top_events;

CREATE INPUT TABLE events_score (
    event_time bigint,
    event text,
    category text,
    score bigint
)
FROM SCRIBE("events_stream")
TIME event_time
WITH (key = 'category', buckets = 2, watermark = 'upstream');

CREATE TABLE top_events_5min AS
SELECT category, event, topk(score, 3) AS score
FROM events_score [5 minutes];
