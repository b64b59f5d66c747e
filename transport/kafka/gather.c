/* Copies messages that librdkafka has fetched into columns: a few calls for a batch, and no object for each message.

   Needs neither Python's nor librdkafka's headers. The message struct is part of librdkafka's public interface (rdkafka.h,
   rd_kafka_message_t); the caller finds the functions in the librdkafka that the Kafka client has loaded. */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
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
    void (*destroy)(message_t *message);
} client_t;

/* The sizes of the columns of some messages. `headers` counts headers, the others are bytes. */
typedef struct {
    int64_t values, keys, headers, header_bytes;
} sizes_t;

/* Where each message's parts end in their buffers. A value is followed by a newline; a missing value, key or header value is in `missing`. */
typedef struct {
    int64_t *offset, *timestamp, *value_end, *key_end, *header_end;
    int8_t *timestamp_kind, *has_value, *has_key;
    char *values, *keys, *header_bytes;
    int64_t *name_size, *header_size;
} columns_t;

/* Takes up to `limit` messages from a queue without waiting; returns their number. */
ptrdiff_t penstock_consume(const client_t *client, void *queue, message_t **messages, size_t limit) {
    return client->consume(queue, 0, messages, limit);
}

/* Describes each message: its error, topic and partition. Returns the number of messages with an error. */
int64_t penstock_describe(message_t **messages, int64_t count, int64_t *topics, int64_t *partitions, int32_t *errors) {
    int64_t failed = 0;
    for (int64_t i = 0; i < count; i++) {
        topics[i] = (int64_t)(intptr_t)messages[i]->topic;
        partitions[i] = messages[i]->partition;
        errors[i] = messages[i]->error;
        failed += messages[i]->error != 0;
    }
    return failed;
}

void penstock_measure(const client_t *client, message_t **messages, int64_t count, sizes_t *sizes) {
    memset(sizes, 0, sizeof *sizes);
    for (int64_t i = 0; i < count; i++) {
        void *headers;
        sizes->values += (int64_t)messages[i]->value_size + 1;
        sizes->keys += (int64_t)messages[i]->key_size;
        if (client->headers(messages[i], &headers) == 0) {
            const char *name;
            const void *value;
            size_t size;
            for (size_t at = 0; client->header(headers, at, &name, &value, &size) == 0; at++) {
                sizes->headers++;
                sizes->header_bytes += (int64_t)(strlen(name) + (value ? size : 0));
            }
        }
    }
}

static int64_t append(char *buffer, int64_t end, const void *bytes, size_t size) {
    if (size)
        memcpy(buffer + end, bytes, size);
    return end + (int64_t)size;
}

/* Copies the parts of messages into columns that `penstock_measure` has sized, and releases the messages. */
static void gather(const client_t *client, message_t **messages, int64_t count, columns_t *to) {
    int64_t values = 0, keys = 0, headers_seen = 0, header_bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        const message_t *message = messages[i];
        void *headers;
        int kind = 0;
        to->offset[i] = message->offset;
        to->timestamp[i] = client->timestamp(message, &kind);
        to->timestamp_kind[i] = (int8_t)kind;
        to->has_value[i] = message->value != NULL;
        to->has_key[i] = message->key != NULL;
        values = append(to->values, values, message->value, message->value_size);
        to->value_end[i] = values;
        to->values[values++] = '\n';
        keys = append(to->keys, keys, message->key, message->key_size);
        to->key_end[i] = keys;
        if (client->headers(message, &headers) == 0) {
            const char *name;
            const void *value;
            size_t size;
            for (size_t at = 0; client->header(headers, at, &name, &value, &size) == 0; at++) {
                to->name_size[headers_seen] = (int64_t)strlen(name);
                to->header_size[headers_seen++] = value ? (int64_t)size : -1;
                header_bytes = append(to->header_bytes, header_bytes, name, strlen(name));
                header_bytes = append(to->header_bytes, header_bytes, value, value ? size : 0);
            }
        }
        to->header_end[i] = headers_seen;
        client->destroy(messages[i]);
    }
}

/* Messages of one bucket, and their columns. */
typedef struct {
    message_t **messages;
    int64_t count;
    columns_t columns;
} run_t;

/* The messages that are copied at once; `thread` copies them in the background. */
typedef struct {
    const client_t *client;
    run_t *runs;
    int64_t count;
    pthread_t thread;
} gathering_t;

static void *gather_all(void *given) {
    gathering_t *gathering = given;
    for (int64_t i = 0; i < gathering->count; i++) {
        run_t *run = &gathering->runs[i];
        gather(gathering->client, run->messages, run->count, &run->columns);
    }
    return NULL;
}

void penstock_gather(gathering_t *gathering) {
    gather_all(gathering);
}

/* Begins to copy in a thread that handles no signals. Returns 0, or an error; then nothing was copied. */
int penstock_gather_begin(gathering_t *gathering) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&gathering->thread, NULL, gather_all, gathering);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void penstock_gather_end(gathering_t *gathering) {
    pthread_join(gathering->thread, NULL);
}
