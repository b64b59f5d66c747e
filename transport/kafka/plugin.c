/* A plugin of librdkafka that notes the handle of each new client.

   Plugins and interceptors are librdkafka's public way to a client that another library creates (rdkafka.h). Needs no headers; the caller finds the
   function in the librdkafka that the Kafka client has loaded. */
#include <stddef.h>

typedef int on_new_t(void *client, const void *configuration, void *given, char *error, size_t error_size);
typedef int add_on_new_t(void *configuration, const char *name, on_new_t *on_new, void *given);

enum { NOT_IMPLEMENTED = -170 }; /* RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED */

static add_on_new_t *add_on_new;
static _Thread_local void *newest;

/* A client is created by the thread that will ask for it. */
static int note(void *client, const void *configuration, void *given, char *error, size_t error_size) {
    (void)configuration, (void)given, (void)error, (void)error_size;
    newest = client;
    return 0;
}

/* Sets rd_kafka_conf_interceptor_add_on_new of the librdkafka that will load this plugin. */
void penstock_plugin_begin(add_on_new_t *function) {
    add_on_new = function;
}

/* Called by librdkafka when a configuration names this plugin. */
int conf_init(void *configuration, void **given, char *error, size_t error_size) {
    (void)given, (void)error, (void)error_size;
    return add_on_new ? add_on_new(configuration, "penstock", note, NULL) : NOT_IMPLEMENTED;
}

/* Returns the client that this thread created last, and forgets it; NULL if there is none. */
void *penstock_plugin_take(void) {
    void *client = newest;
    newest = NULL;
    return client;
}
