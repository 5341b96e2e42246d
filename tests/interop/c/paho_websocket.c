/* Publishes COUNT messages at QOS to itself over WebSocket with Eclipse Paho, all at once, and waits
 * until each was acknowledged and came back. Prints "acknowledged N delivered M". */
#include <MQTTAsync.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_connected, is_subscribed, acknowledged, delivered, failures;

static void count(int *what) {
    pthread_mutex_lock(&lock);
    ++*what;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int wait_for(int *what, int wanted, int seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&lock);
    while (*what < wanted && !failures)
        if (pthread_cond_timedwait(&changed, &lock, &until)) break;
    int is_enough = *what >= wanted;
    pthread_mutex_unlock(&lock);
    return is_enough;
}

static void on_connected(void *context, MQTTAsync_successData *data) { count(&is_connected); }
static void on_subscribed(void *context, MQTTAsync_successData *data) { count(&is_subscribed); }
static void on_acknowledged(void *context, MQTTAsync_successData *data) { count(&acknowledged); }
static void on_failure(void *context, MQTTAsync_failureData *data) { count(&failures); }

static int on_message(void *context, char *topic, int length, MQTTAsync_message *message) {
    MQTTAsync_freeMessage(&message);
    MQTTAsync_free(topic);
    count(&delivered);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    const char *address = argv[1], *name = argv[2], *topic = argv[3];
    int messages = atoi(argv[4]), qos = atoi(argv[5]);
    MQTTAsync client;
    MQTTAsync_createOptions made = MQTTAsync_createOptions_initializer;
    made.maxBufferedMessages = messages;
    made.sendWhileDisconnected = 1;
    MQTTAsync_createWithOptions(&client, address, name, MQTTCLIENT_PERSISTENCE_NONE, NULL, &made);
    MQTTAsync_setCallbacks(client, NULL, NULL, on_message, NULL);
    MQTTAsync_connectOptions options = MQTTAsync_connectOptions_initializer_ws;
    options.cleansession = 1;
    options.maxInflight = messages;
    options.onSuccess = on_connected;
    options.onFailure = on_failure;
    MQTTAsync_connect(client, &options);
    if (!wait_for(&is_connected, 1, 10)) { puts("no connection"); return 1; }
    MQTTAsync_responseOptions subscribing = MQTTAsync_responseOptions_initializer;
    subscribing.onSuccess = on_subscribed;
    subscribing.onFailure = on_failure;
    MQTTAsync_subscribe(client, topic, qos, &subscribing);
    if (!wait_for(&is_subscribed, 1, 10)) { puts("no subscription"); return 1; }
    for (int number = 0; number < messages; ++number) {
        MQTTAsync_responseOptions sending = MQTTAsync_responseOptions_initializer;
        char body[32];
        sending.onSuccess = on_acknowledged;
        sending.onFailure = on_failure;
        int size = snprintf(body, sizeof body, "%d", number);
        if (MQTTAsync_send(client, topic, size, body, qos, 0, &sending)) count(&failures);
    }
    wait_for(&acknowledged, messages, 20);
    wait_for(&delivered, messages, 20);
    printf("acknowledged %d delivered %d failures %d\n", acknowledged, delivered, failures);
    return 0;
}
