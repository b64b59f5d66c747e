CREATE CATEGORY views (
    seen bigint, id bigint NOT NULL, customer text, page text, milliseconds double precision, weight bigint, price numeric, happened timestamp,
    born date, active boolean, payload jsonb
) WITH (key = 'customer', time = 'seen', buckets = 2);
CREATE CATEGORY orders (seen bigint, customer text, item text, cents bigint) WITH (key = 'customer', time = 'seen', buckets = 2);
CREATE CATEGORY payments (seen bigint, customer text, item text, paid bigint) WITH (key = 'customer', time = 'seen', buckets = 2);
CREATE CATEGORY items (seen bigint, item text, price bigint) WITH (key = 'item', time = 'seen', buckets = 2);
CREATE LOOKUP TABLE shelves (item text, shelf bigint) WITH (csv = '{folder}/shelves.csv', key = 'item');
