/* Copies messages that librdkafka has fetched into columns: a few calls for a batch, and no object for each message.

   Needs neither Python's nor librdkafka's headers. The message struct is part of librdkafka's public interface (rdkafka.h,
   rd_kafka_message_t); the caller finds the functions in the librdkafka that the Kafka client has loaded. */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t error;
    void *topic;
    int32_t partition;
    void *value;
    size_t value_size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *private_part;
} message_t;

typedef struct {
    ptrdiff_t (*consume)(void *queue, int timeout_ms, message_t **messages, size_t limit);
    int64_t (*timestamp)(const message_t *message, int *kind);
    int (*headers)(const message_t *message, void **headers);
    int (*header)(const void *headers, size_t index, const char **name, const void **value, size_t *size);
    const char *(*topic_name)(const void *topic);
    void (*destroy)(message_t *message);
    int are_values_in_records;
} client_t;

enum { OUT_OF_MEMORY = -1, TOPIC_NAME_BYTES = 256, MAX_VARINT_BYTES = 10 };

/* Where each message's parts end in their buffers. A value is followed by a newline; a missing value, key or header value is in `has_…` or has the size -1. */
typedef struct {
    int64_t *offset, *timestamp, *value_end, *key_end, *header_end, *name_size, *header_size;
    int8_t *timestamp_kind, *has_value, *has_key;
    char *values, *keys, *header_bytes;
} columns_t;

/* Numbers of messages and headers, and bytes: what is in the columns, or has room there. */
typedef struct {
    int64_t messages, values, keys, headers, header_bytes;
} sizes_t;

/* The messages of one bucket. `memory` contains all columns, in the order of `columns_t`. `topic` may not exist any more when its messages are released. */
typedef struct {
    void *topic;
    char name[TOPIC_NAME_BYTES];
    int64_t partition;
    sizes_t sizes;
    char *memory;
} run_t;

/* Messages that are taken from a queue and copied at once. `thread` does it in the background.

   `messages` has room for `limit` pointers; afterwards it begins with the messages that are errors, which are not released. */
typedef struct {
    const client_t *client;
    void *queue;
    message_t **messages;
    int64_t limit, taken, errors;
    run_t *runs;
    int64_t count;
    pthread_t thread;
} gathering_t;

/* Writes a size as the varint in a record, and returns its length. */
static size_t to_varint(size_t size, unsigned char *varint) {
    uint64_t left = (uint64_t)size << 1; /* zigzag, of a number that is not negative */
    size_t length = 0;
    for (; left >= 0x80; left >>= 7)
        varint[length++] = (unsigned char)(left | 0x80);
    varint[length++] = (unsigned char)left;
    return length;
}

/* Tells whether a record has no headers, by its bytes; only for clients whose values are in records as the broker sent them (message format 2 of
   the Kafka protocol). There, a length of at least six bytes, the key and the size of the value come before the value, and the number of headers
   after it. All are in one allocation: the answer of the broker, or what it was unpacked to. Older formats have four bytes of size before
   the value, which are never equal to it as a varint, so the byte after the value is not read; they have no headers. An empty value may be elsewhere. */
static int is_without_headers(const client_t *client, const message_t *message) {
    const unsigned char *value = message->value;
    unsigned char size[MAX_VARINT_BYTES];
    if (!client->are_values_in_records || !message->value_size)
        return 0;
    size_t length = to_varint(message->value_size, size);
    return memcmp(value - length, size, length) == 0 && value[message->value_size] == 0;
}

/* Returns the headers of a message, or NULL. The client takes about 50 ns to find none, because it allocates a reader for each message. */
static void *headers_of(const client_t *client, const message_t *message) {
    void *headers;
    return !is_without_headers(client, message) && client->headers(message, &headers) == 0 ? headers : NULL;
}

static void add_headers(const client_t *client, const void *headers, sizes_t *sizes) {
    const char *name;
    const void *value;
    size_t size;
    for (size_t at = 0; client->header(headers, at, &name, &value, &size) == 0; at++) {
        sizes->headers++;
        sizes->header_bytes += (int64_t)(strlen(name) + (value ? size : 0));
    }
}

/* Returns the run of a message's bucket, or NULL. Most messages follow one of the same bucket, whose run is `last`. */
static run_t *run_of(const gathering_t *gathering, const message_t *message, run_t *last) {
    if (last && last->topic == message->topic && last->partition == message->partition)
        return last;
    for (int64_t i = 0; i < gathering->count; i++) {
        run_t *run = &gathering->runs[i];
        if (run->topic == message->topic && run->partition == message->partition)
            return run;
    }
    return NULL;
}

static run_t *add_run(gathering_t *gathering, const message_t *message) {
    run_t *runs = realloc(gathering->runs, (size_t)(gathering->count + 1) * sizeof *runs);
    if (!runs)
        return NULL;
    gathering->runs = runs;
    run_t *run = &runs[gathering->count++];
    memset(run, 0, sizeof *run);
    run->topic = message->topic;
    run->partition = message->partition;
    strncpy(run->name, gathering->client->topic_name(message->topic), TOPIC_NAME_BYTES - 1);
    return run;
}

/* Finds the bucket and the headers of each message but the errors, and measures its columns. */
static int measure(gathering_t *gathering, void **headers) {
    run_t *run = NULL;
    for (int64_t i = 0; i < gathering->taken; i++) {
        message_t *message = gathering->messages[i];
        if (message->error)
            continue;
        run = run_of(gathering, message, run);
        if (!run && !(run = add_run(gathering, message)))
            return OUT_OF_MEMORY;
        run->sizes.messages++;
        run->sizes.values += (int64_t)message->value_size + 1;
        run->sizes.keys += (int64_t)message->key_size;
        headers[i] = headers_of(gathering->client, message);
        if (headers[i])
            add_headers(gathering->client, headers[i], &run->sizes);
    }
    return 0;
}

static size_t memory_of(const sizes_t *sizes) {
    int64_t numbers = 5 * sizes->messages + 2 * sizes->headers, flags = 3 * sizes->messages;
    return (size_t)(numbers * 8 + flags + sizes->values + sizes->keys + sizes->header_bytes);
}

/* Divides the memory of a run into columns. */
static void divide(char *memory, const sizes_t *sizes, columns_t *columns) {
    int64_t **numbers[] = {&columns->offset, &columns->timestamp, &columns->value_end, &columns->key_end, &columns->header_end};
    int8_t **flags[] = {&columns->timestamp_kind, &columns->has_value, &columns->has_key};
    char *next = memory;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++, next += sizes->messages * 8)
        *numbers[i] = (int64_t *)next;
    columns->name_size = (int64_t *)next;
    columns->header_size = columns->name_size + sizes->headers;
    next += 2 * sizes->headers * 8;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++, next += sizes->messages)
        *flags[i] = (int8_t *)next;
    columns->values = next;
    columns->keys = columns->values + sizes->values;
    columns->header_bytes = columns->keys + sizes->keys;
}

static int64_t append(char *buffer, int64_t end, const void *bytes, size_t size) {
    if (size)
        memcpy(buffer + end, bytes, size);
    return end + (int64_t)size;
}

/* Appends a message to columns that contain what `filled` counts, and counts it. */
static void copy(const client_t *client, const message_t *message, const void *headers, columns_t *to, sizes_t *filled) {
    int kind = 0;
    int64_t at = filled->messages++;
    to->offset[at] = message->offset;
    to->timestamp[at] = client->timestamp(message, &kind);
    to->timestamp_kind[at] = (int8_t)kind;
    to->has_value[at] = message->value != NULL;
    to->has_key[at] = message->key != NULL;
    to->value_end[at] = filled->values = append(to->values, filled->values, message->value, message->value_size);
    to->values[filled->values++] = '\n';
    to->key_end[at] = filled->keys = append(to->keys, filled->keys, message->key, message->key_size);
    if (headers) {
        const char *name;
        const void *value;
        size_t size;
        for (size_t header = 0; client->header(headers, header, &name, &value, &size) == 0; header++) {
            to->name_size[filled->headers] = (int64_t)strlen(name);
            to->header_size[filled->headers++] = value ? (int64_t)size : -1;
            filled->header_bytes = append(to->header_bytes, filled->header_bytes, name, strlen(name));
            filled->header_bytes = append(to->header_bytes, filled->header_bytes, value, value ? size : 0);
        }
    }
    to->header_end[at] = filled->headers;
}

/* Copies all messages into the columns of their runs, and releases them; errors move to the front of the messages. */
static int copy_all(gathering_t *gathering, void *const *headers) {
    columns_t *columns = calloc((size_t)gathering->count + 1, sizeof *columns);
    sizes_t *filled = calloc((size_t)gathering->count + 1, sizeof *filled);
    int failed = columns && filled ? 0 : OUT_OF_MEMORY;
    for (int64_t i = 0; !failed && i < gathering->count; i++) {
        run_t *run = &gathering->runs[i];
        run->memory = malloc(memory_of(&run->sizes));
        if (run->memory)
            divide(run->memory, &run->sizes, &columns[i]);
        else
            failed = OUT_OF_MEMORY;
    }
    run_t *run = NULL;
    for (int64_t i = 0; !failed && i < gathering->taken; i++) {
        message_t *message = gathering->messages[i];
        if (message->error) {
            gathering->messages[gathering->errors++] = message;
            continue;
        }
        run = run_of(gathering, message, run);
        ptrdiff_t at = run - gathering->runs;
        copy(gathering->client, message, headers[i], &columns[at], &filled[at]);
        gathering->client->destroy(message);
    }
    free(columns);
    free(filled);
    return failed;
}

static void *gather(void *given) {
    gathering_t *gathering = given;
    ptrdiff_t taken = gathering->client->consume(gathering->queue, 0, gathering->messages, (size_t)gathering->limit);
    gathering->taken = taken > 0 ? taken : 0;
    void **headers = malloc(((size_t)gathering->taken + 1) * sizeof *headers);
    if (!headers || measure(gathering, headers) || copy_all(gathering, headers))
        gathering->taken = OUT_OF_MEMORY;
    free(headers);
    return NULL;
}

/* Takes up to `limit` messages from the queue without waiting, and copies them. `taken` is -1 if there is no memory for them. */
void penstock_gather(gathering_t *gathering) {
    gather(gathering);
}

/* Does the same in a thread that handles no signals. Returns 0, or an error; then nothing was taken. */
int penstock_gather_begin(gathering_t *gathering) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&gathering->thread, NULL, gather, gathering);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void penstock_gather_end(gathering_t *gathering) {
    pthread_join(gathering->thread, NULL);
}

/* Releases the memory of a run, or the runs themselves. */
void penstock_release(void *memory) {
    free(memory);
}
