/* An AMQP 1.0 client on Apache Qpid Proton's C library, as a program of C would use it: a blocking
 * socket, the connection driver, and one loop. Does what its first argument names, prints one line
 * for each thing that it saw, and ends with 0. A line that begins with "?" asks the test to do
 * something and to answer with a line on standard input.
 */
#include <proton/connection.h>
#include <proton/connection_driver.h>
#include <proton/condition.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <proton/transport.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 60 /* seconds */
#define MANY 1000   /* links */

typedef struct {
  pn_connection_driver_t driver;
  pn_session_t *session;
  int socket;
  bool is_lost;
} client_t;

static int port;
static int made; /* links, so that each has a name of its own */

static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

/* --- the connection */

static void handle(pn_event_t *event) {
  switch (pn_event_type(event)) {
    case PN_LINK_REMOTE_CLOSE: {
      pn_condition_t *condition = pn_link_remote_condition(pn_event_link(event));
      if (pn_condition_is_set(condition)) {
        fail("link: %s: %s", pn_condition_get_name(condition),
             pn_condition_get_description(condition));
      }
      break;
    }
    case PN_CONNECTION_REMOTE_CLOSE: {
      pn_condition_t *condition = pn_connection_remote_condition(pn_event_connection(event));
      if (pn_condition_is_set(condition)) {
        fail("connection: %s", pn_condition_get_description(condition));
      }
      break;
    }
    default:
      break;
  }
}

/* One turn: writes what there is, waits a moment for something to read, reads it. */
static void turn(client_t *client) {
  pn_connection_driver_t *driver = &client->driver;
  pn_event_t *event;
  while ((event = pn_connection_driver_next_event(driver))) handle(event);
  pn_bytes_t output = pn_connection_driver_write_buffer(driver);
  pn_rwbytes_t input = pn_connection_driver_read_buffer(driver);
  struct pollfd poller = {client->socket, 0, 0};
  if (output.size) poller.events |= POLLOUT;
  if (input.size) poller.events |= POLLIN;
  if (!poller.events) {
    client->is_lost = true;
    return;
  }
  if (poll(&poller, 1, 50) < 0) fail("poll: %s", strerror(errno));
  if (poller.revents & POLLOUT) {
    ssize_t count = send(client->socket, output.start, output.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) pn_connection_driver_write_done(driver, (size_t)count);
    if (count < 0 && errno != EAGAIN) pn_connection_driver_write_close(driver);
  }
  if (poller.revents & (POLLIN | POLLHUP | POLLERR)) {
    ssize_t count = recv(client->socket, input.start, input.size, MSG_DONTWAIT);
    if (count > 0) pn_connection_driver_read_done(driver, (size_t)count);
    if (count == 0 || (count < 0 && errno != EAGAIN)) {
      client->is_lost = true;
      pn_connection_driver_read_close(driver);
    }
  }
  while ((event = pn_connection_driver_next_event(driver))) handle(event);
}

#define UNTIL(client, condition)                                                \
  do {                                                                          \
    time_t end_ = time(NULL) + PATIENCE;                                        \
    while (!(condition)) {                                                      \
      if ((client)->is_lost) fail("line %d: the connection is lost", __LINE__); \
      if (time(NULL) > end_) fail("line %d: it did not come", __LINE__);        \
      turn(client);                                                             \
    }                                                                           \
  } while (0)

static void open_client(client_t *client) {
  memset(client, 0, sizeof *client);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  client->socket = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(client->socket, (struct sockaddr *)&address, sizeof address)) {
    fail("connect: %s", strerror(errno));
  }
  pn_connection_driver_init(&client->driver, NULL, NULL);
  pn_connection_t *connection = client->driver.connection;
  char container[64];
  snprintf(container, sizeof container, "c-%d", (int)getpid());
  pn_connection_set_container(connection, container);
  pn_connection_set_user(connection, "guest");
  pn_connection_set_password(connection, "guest");
  pn_connection_open(connection); /* before the transport asks for its login */
  pn_sasl_t *sasl = pn_sasl(client->driver.transport);
  pn_sasl_set_allow_insecure_mechs(sasl, true);
  pn_sasl_allowed_mechs(sasl, "PLAIN");
  client->session = pn_session(connection);
  pn_session_open(client->session);
  UNTIL(client, pn_connection_state(connection) & PN_REMOTE_ACTIVE);
}

static void close_client(client_t *client) {
  pn_connection_close(client->driver.connection);
  while (!client->is_lost && !pn_connection_driver_finished(&client->driver)) turn(client);
  pn_connection_driver_destroy(&client->driver);
  close(client->socket);
}

/* --- links */

static pn_link_t *open_link(client_t *client, const char *address, bool is_sender) {
  char name[32];
  snprintf(name, sizeof name, "link-%d", made++);
  pn_link_t *link =
      is_sender ? pn_sender(client->session, name) : pn_receiver(client->session, name);
  pn_terminus_set_address(is_sender ? pn_link_target(link) : pn_link_source(link), address);
  pn_link_open(link);
  return link;
}

static pn_link_t *open_sender(client_t *client, const char *address) {
  pn_link_t *link = open_link(client, address, true);
  UNTIL(client, pn_link_credit(link) > 0);
  return link;
}

static pn_link_t *open_receiver(client_t *client, const char *address) {
  pn_link_t *link = open_link(client, address, false);
  UNTIL(client, pn_link_state(link) & PN_REMOTE_ACTIVE);
  return link;
}

static void close_link(client_t *client, pn_link_t *link) {
  pn_link_close(link);
  UNTIL(client, pn_link_state(link) & PN_REMOTE_CLOSED);
  pn_link_free(link);
}

/* --- messages */

static pn_delivery_t *put(pn_link_t *link, const char *body, size_t size) {
  static int number;
  pn_message_t *message = pn_message();
  pn_message_set_durable(message, true);
  pn_message_set_inferred(message, true);
  pn_data_put_binary(pn_message_body(message), pn_bytes(size, body));
  size_t room = size + 512;
  char *encoded = malloc(room);
  if (pn_message_encode(message, encoded, &room)) fail("a message cannot be encoded");
  char tag[16];
  int length = snprintf(tag, sizeof tag, "%d", number++);
  pn_delivery_t *delivery = pn_delivery(link, pn_dtag(tag, (size_t)length));
  pn_link_send(link, encoded, room);
  pn_link_advance(link);
  free(encoded);
  pn_message_free(message);
  return delivery;
}

static void send_one(client_t *client, pn_link_t *link, const char *body, size_t size) {
  UNTIL(client, pn_link_credit(link) > 0);
  pn_delivery_t *delivery = put(link, body, size);
  UNTIL(client, pn_delivery_settled(delivery));
  if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) fail("not accepted: %s", body);
  pn_delivery_settle(delivery);
}

typedef struct {
  pn_delivery_t *delivery;
  char *body;
  size_t size;
  uint32_t count;
  bool is_first;
} got_t;

static bool has_message(pn_link_t *link) {
  pn_delivery_t *delivery = pn_link_current(link);
  return delivery && pn_delivery_readable(delivery) && !pn_delivery_partial(delivery);
}

static got_t take(pn_link_t *link) {
  got_t got = {.delivery = pn_link_current(link)};
  size_t size = pn_delivery_pending(got.delivery);
  char *encoded = malloc(size);
  if (pn_link_recv(link, encoded, size) != (ssize_t)size) fail("a message ends too early");
  pn_link_advance(link);
  pn_message_t *message = pn_message();
  if (pn_message_decode(message, encoded, size)) fail("a message cannot be decoded");
  pn_data_t *body = pn_message_body(message);
  pn_data_next(body);
  pn_bytes_t content = pn_data_get_binary(body);
  got.body = malloc(content.size + 1);
  memcpy(got.body, content.start, content.size);
  got.body[content.size] = 0;
  got.size = content.size;
  got.count = pn_message_get_delivery_count(message);
  got.is_first = pn_message_is_first_acquirer(message);
  pn_message_free(message);
  free(encoded);
  return got;
}

static got_t receive(client_t *client, pn_link_t *link) {
  if (!pn_link_credit(link)) pn_link_flow(link, 1);
  UNTIL(client, has_message(link));
  return take(link);
}

static void settle(got_t *got, uint64_t outcome) {
  pn_delivery_update(got->delivery, outcome);
  pn_delivery_settle(got->delivery);
  free(got->body);
}

/* --- what it can do */

static void exchange(client_t *client, const char *address) {
  pn_link_t *sender = open_sender(client, address);
  send_one(client, sender, "hello", 5);
  pn_link_t *receiver = open_receiver(client, address);
  got_t got = receive(client, receiver);
  printf("%s %d %u\n", got.body, got.is_first, got.count);
  settle(&got, PN_ACCEPTED);
  close_link(client, receiver);
  close_link(client, sender);
}

/* What a link gets for its credit, and no more; then the rest by draining. */
static void credit(client_t *client, const char *address) {
  pn_link_t *sender = open_sender(client, address);
  for (int i = 0; i < 5; i++) send_one(client, sender, "x", 1);
  pn_link_t *receiver = open_receiver(client, address);
  pn_link_flow(receiver, 2);
  int count = 0;
  for (; count < 2; count++) {
    UNTIL(client, has_message(receiver));
    got_t got = take(receiver);
    settle(&got, PN_ACCEPTED);
  }
  send_one(client, sender, "behind it", 9); /* all that was to come for the credit has come */
  printf("starved %d\n", !has_message(receiver));
  pn_link_drain(receiver, 10);
  while (pn_link_draining(receiver) || has_message(receiver)) {
    if (has_message(receiver)) {
      got_t got = take(receiver);
      settle(&got, PN_ACCEPTED);
      count++;
    } else {
      turn(client);
    }
  }
  printf("drained %d credit %d\n", count, pn_link_credit(receiver));
  close_link(client, receiver);
  close_link(client, sender);
}

static void outcomes(client_t *client, const char *address) {
  static const struct {
    const char *name;
    uint64_t state;
    bool fails, comes_back;
  } ways[] = {
      {"accepted", PN_ACCEPTED, false, false},
      {"rejected", PN_REJECTED, false, false},
      {"released", PN_RELEASED, false, true},
      {"modified", PN_MODIFIED, false, true},
      {"failed", PN_MODIFIED, true, true},
  };
  pn_link_t *sender = open_sender(client, address);
  pn_link_t *receiver = open_receiver(client, address);
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    send_one(client, sender, ways[i].name, strlen(ways[i].name));
    got_t got = receive(client, receiver);
    if (ways[i].fails) pn_disposition_set_failed(pn_delivery_local(got.delivery), true);
    settle(&got, ways[i].state);
    if (!ways[i].comes_back) send_one(client, sender, "next", 4);
    got = receive(client, receiver);
    printf("%s: %s %d %u\n", ways[i].name, got.body, got.is_first, got.count);
    settle(&got, PN_ACCEPTED);
  }
  close_link(client, receiver);
  close_link(client, sender);
}

static void large(client_t *client, const char *address, size_t size) {
  char *body = malloc(size);
  for (size_t i = 0; i < size; i++) body[i] = (char)(i * 31 % 251);
  pn_link_t *sender = open_sender(client, address);
  send_one(client, sender, body, size);
  pn_link_t *receiver = open_receiver(client, address);
  got_t got = receive(client, receiver);
  printf("large %d\n", got.size == size && !memcmp(got.body, body, size));
  settle(&got, PN_ACCEPTED);
  close_link(client, receiver);
  close_link(client, sender);
  free(body);
}

static void many_links(client_t *client, const char *address) {
  static pn_link_t *links[MANY];
  static pn_delivery_t *sent[MANY];
  int count = 0;
  for (int i = 0; i < MANY; i++) links[i] = open_link(client, address, true);
  for (int i = 0; i < MANY; i++) {
    UNTIL(client, pn_link_credit(links[i]) > 0);
    sent[i] = put(links[i], "x", 1);
  }
  for (int i = 0; i < MANY; i++) {
    UNTIL(client, pn_delivery_settled(sent[i]));
    count += pn_delivery_remote_state(sent[i]) == PN_ACCEPTED;
  }
  printf("links %d\n", count);
}

/* Loses its connection with a message in its hands, comes back, and gets it again. */
static void reconnect(client_t *client, const char *address) {
  pn_link_t *sender = open_sender(client, address);
  send_one(client, sender, "kept", 4);
  pn_link_t *receiver = open_receiver(client, address);
  got_t got = receive(client, receiver);
  free(got.body);
  printf("?cut\n");
  fflush(stdout);
  if (getchar() == EOF) fail("nobody answers");
  while (!client->is_lost) turn(client);
  pn_connection_driver_destroy(&client->driver);
  close(client->socket);
  open_client(client);
  receiver = open_receiver(client, address);
  got = receive(client, receiver);
  printf("again: %s %d %u\n", got.body, got.is_first, got.count);
  settle(&got, PN_ACCEPTED);
  sender = open_sender(client, address);
  send_one(client, sender, "after", 5);
  got = receive(client, receiver);
  printf("after: %s\n", got.body);
  settle(&got, PN_ACCEPTED);
}

int main(int count, char **arguments) {
  if (count < 4) fail("usage: client WHAT PORT ADDRESS [SIZE]");
  const char *what = arguments[1], *address = arguments[3];
  port = atoi(arguments[2]);
  client_t client;
  open_client(&client);
  if (!strcmp(what, "exchange")) exchange(&client, address);
  else if (!strcmp(what, "credit")) credit(&client, address);
  else if (!strcmp(what, "outcomes")) outcomes(&client, address);
  else if (!strcmp(what, "large") && count > 4) large(&client, address, strtoul(arguments[4], NULL, 10));
  else if (!strcmp(what, "links")) many_links(&client, address);
  else if (!strcmp(what, "reconnect")) reconnect(&client, address);
  else fail("no such thing: %s", what);
  close_client(&client);
  return 0;
}
